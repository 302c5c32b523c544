// Python's string rules that several parts of the template language share.
//
// Thread safety: pure functions.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "renga/tokenizer.h"

namespace renga::jinja {

// str.isspace(): White_Space and the four information separators.
bool IsPythonSpace(char32_t code);

// Bytes of white space at the start and at the end. REQUIRES: UTF-8.
size_t LeadingSpace(std::string_view text);
size_t TrailingSpace(std::string_view text);

// str.upper(), lower(), title(), capitalize().
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Title(std::string_view text);
std::string Capitalize(std::string_view text);

// Byte offset of character number `index` (its end for index == count).
size_t OffsetOfCharacter(std::string_view text, int64_t index);

// text.find(needle, from) in linear time for any needle.
size_t FindText(std::string_view text, std::string_view needle, size_t from);

// The part of `text` that strip(chars) keeps on the wanted sides; chars empty: white
// space.
struct StripSides {
  bool left = true;
  bool right = true;
};
ByteRange Stripped(std::string_view text, std::string_view chars, StripSides sides);

}  // namespace renga::jinja
