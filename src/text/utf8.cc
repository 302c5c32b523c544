#include "text/utf8.h"

#include <utf8proc.h>

#include <array>

namespace renga {
namespace {

// The table of well-formed sequences: how long, and what the second byte may be.
struct LeadByte {
  uint32_t length = 0;  // 0: never a lead byte.
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

LeadByte ReadLead(uint8_t byte) {
  if (byte < 0x80) return {.length = 1};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {.length = 2};
  if (byte == 0xE0) return {.length = 3, .second_low = 0xA0};
  if (byte == 0xED) return {.length = 3, .second_high = 0x9F};
  if (byte < 0xF0) return {.length = 3};
  if (byte == 0xF0) return {.length = 4, .second_low = 0x90};
  if (byte < 0xF4) return {.length = 4};
  if (byte == 0xF4) return {.length = 4, .second_high = 0x8F};
  return {};
}

CharClass ClassOfSlow(char32_t code) {
  if (IsWhiteSpace(code)) return CharClass::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::kNumber;
    default:
      return CharClass::kOther;
  }
}

std::array<CharClass, 128> AsciiClasses() {
  std::array<CharClass, 128> classes{};
  for (char32_t code = 0; code < 128; ++code) classes[code] = ClassOfSlow(code);
  return classes;
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const LeadByte lead = ReadLead(byte(0));
  if (lead.length == 0) return {.length = 1, .verdict = Utf8Char::Verdict::kInvalid};
  if (lead.length == 1) {
    return {.code = byte(0), .length = 1, .verdict = Utf8Char::Verdict::kValid};
  }
  char32_t code = byte(0) & (0xFFu >> (lead.length + 1));
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (i >= bytes.size()) return {.length = i, .verdict = Utf8Char::Verdict::kCut};
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte(i) < low || byte(i) > high) {
      return {.length = i, .verdict = Utf8Char::Verdict::kInvalid};
    }
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  return {.code = code, .length = lead.length, .verdict = Utf8Char::Verdict::kValid};
}

std::optional<size_t> FindInvalidUtf8(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    if (static_cast<uint8_t>(bytes[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Char c = DecodeUtf8(bytes.substr(at));
    if (c.verdict != Utf8Char::Verdict::kValid) return at;
    at += c.length;
  }
  return std::nullopt;
}

void AppendUtf8(char32_t code, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

int64_t CountCharacters(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

bool IsWhiteSpace(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  switch (code) {
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
      return true;
    default:
      return code >= 0x2000 && code <= 0x200A;
  }
}

CharClass ClassOf(char32_t code) {
  static const std::array<CharClass, 128> ascii = AsciiClasses();
  return code < 128 ? ascii[code] : ClassOfSlow(code);
}

bool IsPrintable(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return code == ' ';
    default:
      return true;
  }
}

bool IsWordCharacter(char32_t code) {
  if (code == 0x200C || code == 0x200D) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return ClassOf(code) == CharClass::kLetter;
  }
}

}  // namespace renga
