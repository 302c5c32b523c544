#include "text/jinja/marked.h"

#include <algorithm>
#include <utility>

namespace renga::jinja {
namespace {

void AddMark(MarkedText& to, size_t begin, size_t end) {
  if (begin == end) return;
  if (!to.trusted.empty() && to.trusted.back().end == begin) {
    to.trusted.back().end = end;
  } else {
    to.trusted.push_back({begin, end});
  }
}

}  // namespace

MarkedText TrustedText(std::string text) {
  MarkedText marked{std::move(text), {}};
  AddMark(marked, 0, marked.text.size());
  return marked;
}

MarkedText PlainText(std::string text) { return {std::move(text), {}}; }

bool WhollyTrusted(const MarkedText& text) {
  return text.text.empty() || (text.trusted.size() == 1 && text.trusted[0].begin == 0 &&
                               text.trusted[0].end == text.text.size());
}

void Append(MarkedText& to, const MarkedText& text) {
  AppendSlice(to, text, 0, text.text.size());
}

void AppendTrusted(MarkedText& to, std::string_view text) {
  const size_t begin = to.text.size();
  to.text.append(text);
  AddMark(to, begin, to.text.size());
}

void AppendPlain(MarkedText& to, std::string_view text) { to.text.append(text); }

void AppendSlice(MarkedText& to, const MarkedText& from, size_t begin, size_t end) {
  const size_t base = to.text.size();
  to.text.append(from.text, begin, end - begin);
  auto range =
      std::lower_bound(from.trusted.begin(), from.trusted.end(), begin,
                       [](const ByteRange& r, size_t at) { return r.end <= at; });
  for (; range != from.trusted.end() && range->begin < end; ++range) {
    AddMark(to, base + std::max(range->begin, begin) - begin,
            base + std::min(range->end, end) - begin);
  }
}

MarkedText Slice(const MarkedText& from, size_t begin, size_t end) {
  MarkedText slice;
  AppendSlice(slice, from, begin, end);
  return slice;
}

MarkedText Changed(const MarkedText& from, std::string text) {
  return WhollyTrusted(from) ? TrustedText(std::move(text)) : PlainText(std::move(text));
}

}  // namespace renga::jinja
