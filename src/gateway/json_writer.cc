#include "gateway/json_writer.h"

#include <charconv>
#include <cmath>

namespace renga {
namespace {

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// What may follow a lead byte: how many bytes, and the range of the first of them (which
// keeps out overlong forms, surrogates and what is above U+10FFFF).
struct Sequence {
  size_t more = 0;
  uint8_t least = 0x80;
  uint8_t most = 0xBF;
};

bool SequenceOf(uint8_t lead, Sequence& sequence) {
  if (lead >= 0xC2 && lead <= 0xDF) {
    sequence = {.more = 1};
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    sequence = {.more = 2,
                .least = static_cast<uint8_t>(lead == 0xE0 ? 0xA0 : 0x80),
                .most = static_cast<uint8_t>(lead == 0xED ? 0x9F : 0xBF)};
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    sequence = {.more = 3,
                .least = static_cast<uint8_t>(lead == 0xF0 ? 0x90 : 0x80),
                .most = static_cast<uint8_t>(lead == 0xF4 ? 0x8F : 0xBF)};
  } else {
    return false;
  }
  return true;
}

// Bytes of the character at `at`; if there is none, 0, and `bad` is how many bytes one
// U+FFFD stands for (Unicode's "maximal subpart").
size_t CharacterAt(std::string_view text, size_t at, size_t& bad) {
  bad = 1;
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return 1;
  Sequence sequence;
  if (!SequenceOf(lead, sequence)) return 0;
  for (size_t i = 1; i <= sequence.more; ++i) {
    if (at + i >= text.size()) return 0;
    const auto next = static_cast<uint8_t>(text[at + i]);
    const bool fits = i == 1 ? next >= sequence.least && next <= sequence.most
                             : IsContinuation(text[at + i]);
    if (!fits) return 0;
    ++bad;
  }
  return sequence.more + 1;
}

void AppendEscape(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += kHex[static_cast<uint8_t>(c) >> 4];
      out += kHex[static_cast<uint8_t>(c) & 15];
  }
}

bool IsPlain(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return byte >= 0x20 && byte < 0x7F && c != '"' && c != '\\';
}

template <class Number>
void AppendNumber(std::string& out, Number value) {
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}

}  // namespace

bool IsUtf8(std::string_view bytes) {
  for (size_t at = 0, bad = 0; at < bytes.size();) {
    const size_t length = CharacterAt(bytes, at, bad);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

void JsonWriter::AppendString(std::string_view value) {
  out_ += '"';
  for (size_t at = 0; at < value.size();) {
    size_t plain = at;
    while (plain < value.size() && IsPlain(value[plain])) ++plain;
    out_.append(value, at, plain - at);
    at = plain;
    if (at == value.size()) break;
    size_t bad = 0;
    const size_t length = CharacterAt(value, at, bad);
    if (length == 0) {
      out_ += "\xEF\xBF\xBD";
      at += bad;
    } else if (length == 1) {
      AppendEscape(out_, value[at++]);
    } else {
      out_.append(value, at, length);
      at += length;
    }
  }
  out_ += '"';
}

void JsonWriter::Separate() {
  if (after_value_) out_ += ',';
  after_value_ = true;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  out_ += bracket;
  after_value_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  out_ += bracket;
  after_value_ = true;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Separate();
  AppendString(key);
  out_ += ':';
  after_value_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view value) {
  Separate();
  AppendString(value);
  return *this;
}

JsonWriter& JsonWriter::Int(int64_t value) {
  Separate();
  AppendNumber(out_, value);
  return *this;
}

JsonWriter& JsonWriter::Double(double value) {
  if (!std::isfinite(value)) return Null();
  Separate();
  AppendNumber(out_, value);
  return *this;
}

JsonWriter& JsonWriter::Float(float value) {
  if (!std::isfinite(value)) return Null();
  Separate();
  AppendNumber(out_, value);
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) { return Raw(value ? "true" : "false"); }

JsonWriter& JsonWriter::Null() { return Raw("null"); }

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Separate();
  out_ += json;
  return *this;
}

}  // namespace renga
