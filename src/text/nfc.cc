#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "text/utf8.h"

namespace renga {
namespace {

constexpr auto kDecompose =
    static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
constexpr auto kCompose =
    static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

int CombiningClass(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

void AppendDecomposed(char32_t code, std::vector<utf8proc_int32_t>& out) {
  std::array<utf8proc_int32_t, 32> parts{};
  int last_class = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                              parts.size(), kDecompose, &last_class);
  if (count <= 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    out.push_back(static_cast<utf8proc_int32_t>(code));  // Not in the tables: itself.
    return;
  }
  out.insert(out.end(), parts.begin(), parts.begin() + count);
}

// Canonical ordering: each run of combining marks by class, equal classes as they came.
void SortMarks(std::vector<utf8proc_int32_t>& codes) {
  for (size_t begin = 0; begin < codes.size();) {
    if (CombiningClass(codes[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < codes.size() && CombiningClass(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(begin),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [](utf8proc_int32_t a, utf8proc_int32_t b) {
                       return CombiningClass(a) < CombiningClass(b);
                     });
    begin = end;
  }
}

}  // namespace

std::string NormalizeNfc(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; })) {
    return std::string(text);
  }
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    AppendDecomposed(c.code, codes);
    at += c.length;
  }
  SortMarks(codes);
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), kCompose);
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<char32_t>(codes[static_cast<size_t>(i)]), out);
  }
  return out;
}

}  // namespace renga
