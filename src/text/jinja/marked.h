// Operations on MarkedText that keep, for every byte, who wrote it.
//
// Marks are sorted, do not overlap and do not touch. A byte is trusted only if the
// template wrote it; what is made from a trusted and an untrusted part is trusted in the
// trusted part alone.
//
// Thread safety: pure functions.

#pragma once

#include <string>
#include <string_view>

#include "renga/tokenizer.h"

namespace renga::jinja {

// Text that the template wrote.
MarkedText TrustedText(std::string text);
// Text that came from outside, or whose origin is mixed beyond telling.
MarkedText PlainText(std::string text);

// Every byte is trusted.
bool WhollyTrusted(const MarkedText& text);

void Append(MarkedText& to, const MarkedText& text);
void AppendTrusted(MarkedText& to, std::string_view text);
void AppendPlain(MarkedText& to, std::string_view text);
void AppendSlice(MarkedText& to, const MarkedText& from, size_t begin, size_t end);

MarkedText Slice(const MarkedText& from, size_t begin, size_t end);

// `text` made from `from` by a change of single characters: trusted only if all of
// `from` is.
MarkedText Changed(const MarkedText& from, std::string text);

}  // namespace renga::jinja
