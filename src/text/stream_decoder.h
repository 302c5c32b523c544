// StreamDecoder: token ids of one answer -> text in whole UTF-8 characters.
//
// A token may end inside a character; its bytes are held until the character is whole.
// Bytes that cannot become a character turn into U+FFFD as soon as that is certain, one
// per maximal wrong piece, so the joined output equals decoding all bytes at once. At
// most three bytes are held.
//
// Thread rule: one caller at a time.

#pragma once

#include <span>
#include <string>
#include <string_view>

#include "renga/tokenizer.h"

namespace renga {

class StreamDecoder {
 public:
  // `tokenizer` outlives this.
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Appends what has become certain to `out`. REQUIRES: a valid id.
  void Append(TokenId id, std::string& out) { AppendBytes(tokenizer_.Bytes(id), out); }
  // The end: a character that was never finished becomes U+FFFD.
  void Flush(std::string& out);

  bool holds_bytes() const { return !held_.empty(); }

 private:
  void AppendBytes(std::string_view bytes, std::string& out);

  const Tokenizer& tokenizer_;
  std::string held_;  // A proper prefix of one character.
};

// Text of all of `ids`; bytes that are not UTF-8 become U+FFFD. REQUIRES: valid ids.
std::string DecodeAll(const Tokenizer& tokenizer, std::span<const TokenId> ids);

}  // namespace renga
