#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace renga {
namespace {

constexpr char32_t kAlphabetEnd = 0x100 + 68;

bool StandsForItself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kAlphabetEnd> byte{};
};

Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = StandsForItself(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.character[static_cast<size_t>(byte)] = c;
    alphabet.byte[c] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet = MakeAlphabet();
  return alphabet;
}

}  // namespace

char32_t ByteToAlphabet(uint8_t byte) { return TheAlphabet().character[byte]; }

std::optional<std::string> AlphabetToBytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t at = 0; at < token.size();) {
    const Utf8Char c = DecodeUtf8(token.substr(at));
    if (c.verdict != Utf8Char::Verdict::kValid || c.code >= kAlphabetEnd) {
      return std::nullopt;
    }
    const int16_t byte = TheAlphabet().byte[c.code];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    at += c.length;
  }
  return bytes;
}

std::string BytesToAlphabet(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes)
    AppendUtf8(ByteToAlphabet(static_cast<uint8_t>(byte)), token);
  return token;
}

}  // namespace renga
