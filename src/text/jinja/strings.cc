#include "text/jinja/strings.h"

#include <utf8proc.h>

#include <vector>

#include "text/utf8.h"

namespace renga::jinja {
namespace {

size_t PreviousOffset(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

char32_t ToUpper(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}
char32_t ToLower(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

void AppendUpper(char32_t code, std::string& out) {
  if (code == 0xDF) {  // The one common letter whose capital is two.
    out += "SS";
  } else {
    AppendUtf8(ToUpper(code), out);
  }
}

// Applies `change(code, out)` to every character; wrong bytes stay as they are.
template <class Change>
std::string Mapped(std::string_view text, Change change) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    if (c.verdict == Utf8Char::Verdict::kValid) {
      change(c.code, out);
    } else {
      out.append(text.substr(at, c.length));
    }
    at += c.length;
  }
  return out;
}

bool InChars(std::string_view chars, std::string_view character) {
  return chars.find(character) != std::string_view::npos;
}

}  // namespace

bool IsPythonSpace(char32_t code) {
  return IsWhiteSpace(code) || (code >= 0x1C && code <= 0x1F);
}

size_t LeadingSpace(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    if (!IsPythonSpace(c.code)) break;
    at += c.length;
  }
  return at;
}

size_t TrailingSpace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t at = PreviousOffset(text, end);
    if (!IsPythonSpace(DecodeUtf8(text.substr(at)).code)) break;
    end = at;
  }
  return text.size() - end;
}

std::string Upper(std::string_view text) { return Mapped(text, AppendUpper); }

std::string Lower(std::string_view text) {
  return Mapped(text,
                [](char32_t code, std::string& out) { AppendUtf8(ToLower(code), out); });
}

std::string Title(std::string_view text) {
  bool inside = false;
  return Mapped(text, [&](char32_t code, std::string& out) {
    inside ? AppendUtf8(ToLower(code), out) : AppendUpper(code, out);
    inside = ClassOf(code) == CharClass::kLetter;
  });
}

std::string Capitalize(std::string_view text) {
  bool first = true;
  return Mapped(text, [&](char32_t code, std::string& out) {
    first ? AppendUpper(code, out) : AppendUtf8(ToLower(code), out);
    first = false;
  });
}

size_t OffsetOfCharacter(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += DecodeUtf8(text.substr(at)).length;
  return at;
}

size_t FindText(std::string_view text, std::string_view needle, size_t from) {
  // The library's search is quadratic at worst; short needles bound that.
  if (needle.size() <= 16) return text.find(needle, from);
  std::vector<size_t> border(needle.size() + 1, 0);  // Of the prefix of each length.
  for (size_t i = 1, k = 0; i < needle.size(); ++i) {
    while (k > 0 && needle[i] != needle[k]) k = border[k];
    if (needle[i] == needle[k]) ++k;
    border[i + 1] = k;
  }
  for (size_t at = from, k = 0; at < text.size(); ++at) {
    while (k > 0 && text[at] != needle[k]) k = border[k];
    if (text[at] == needle[k]) ++k;
    if (k == needle.size()) return at + 1 - k;
  }
  return std::string_view::npos;
}

ByteRange Stripped(std::string_view text, std::string_view chars, StripSides sides) {
  ByteRange kept{0, text.size()};
  const auto strips = [&](size_t at, size_t length) {
    return chars.empty() ? IsPythonSpace(DecodeUtf8(text.substr(at)).code)
                         : InChars(chars, text.substr(at, length));
  };
  while (sides.left && kept.begin < kept.end) {
    const size_t length = DecodeUtf8(text.substr(kept.begin)).length;
    if (!strips(kept.begin, length)) break;
    kept.begin += length;
  }
  while (sides.right && kept.begin < kept.end) {
    const size_t at = PreviousOffset(text, kept.end);
    if (!strips(at, kept.end - at)) break;
    kept.end = at;
  }
  return kept;
}

}  // namespace renga::jinja
