// The GPT-2 byte alphabet: every byte has one printable character, so that a vocabulary
// of bytes can be written as text. Printable Latin-1 stands for itself, the other 68
// bytes for U+0100 and up.
//
// Thread safety: pure functions.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace renga {

// The character that stands for `byte`.
char32_t ByteToAlphabet(uint8_t byte);

// The bytes that `token` spells; nullopt if a character is not in the alphabet.
std::optional<std::string> AlphabetToBytes(std::string_view token);

// `bytes` spelled in the alphabet.
std::string BytesToAlphabet(std::string_view bytes);

}  // namespace renga
