// UTF-8 and the few Unicode classes that tokenizers and templates ask for.
//
// Invalid bytes are judged as the Unicode standard recommends (maximal subparts), which
// is also what the reference decoders do: each maximal wrong piece is one U+FFFD.
//
// Thread safety: pure functions.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace renga {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Char {
  enum class Verdict : uint8_t {
    kValid,
    kInvalid,  // `length` bytes that no further byte can make valid.
    kCut,      // The bytes so far are a proper prefix of a character.
  };
  char32_t code = 0;    // Valid characters only.
  uint32_t length = 0;  // Bytes it covers; for kCut all that is left.
  Verdict verdict = Verdict::kInvalid;
};

// The first character of `bytes`. REQUIRES: not empty.
Utf8Char DecodeUtf8(std::string_view bytes);

// Offset of the first byte that is not part of a valid character; nullopt: all valid.
std::optional<size_t> FindInvalidUtf8(std::string_view bytes);

void AppendUtf8(char32_t code, std::string& out);

// Number of characters. REQUIRES: valid UTF-8.
int64_t CountCharacters(std::string_view text);

// Unicode White_Space: `\s` of the pre-tokenizer expressions.
bool IsWhiteSpace(char32_t code);

enum class CharClass : uint8_t { kLetter, kNumber, kSpace, kOther };

// \p{L}, \p{N}, \s and the rest.
CharClass ClassOf(char32_t code);

// str.isprintable(): no control, format, private, unassigned or (but U+0020) space.
bool IsPrintable(char32_t code);

// \w of the reference's added-token rules: letters, marks, digits, connectors, joiners.
bool IsWordCharacter(char32_t code);

}  // namespace renga
