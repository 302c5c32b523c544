#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace renga {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    Pattern pattern;
    pattern.text = std::move(stop);
    const std::string& text = pattern.text;
    pattern.border.assign(text.size() + 1, 0);
    uint32_t border = 0;
    for (size_t i = 1; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[border]) border = pattern.border[border];
      if (text[i] == text[border]) ++border;
      pattern.border[i + 1] = border;
    }
    longest_ = std::max(longest_, text.size());
    patterns_.push_back(std::move(pattern));
  }
}

bool StopMatcher::Advance(Pattern& pattern, char byte) {
  size_t& matched = pattern.matched;
  while (matched > 0 && pattern.text[matched] != byte) matched = pattern.border[matched];
  if (pattern.text[matched] == byte) ++matched;
  if (matched < pattern.text.size()) return false;
  matched = pattern.border[matched];
  return true;
}

std::optional<StopMatcher::Match> StopMatcher::Feed(std::string_view text) {
  std::optional<Match> best;
  for (size_t p = 0; p < patterns_.size(); ++p) {
    Pattern& pattern = patterns_[p];
    if (pattern.text.empty()) continue;
    for (size_t i = 0; i < text.size(); ++i) {
      if (!Advance(pattern, text[i])) continue;
      const size_t begin = read_ + i + 1 - pattern.text.size();
      const bool better = !best || begin < best->begin ||
                          (begin == best->begin &&
                           pattern.text.size() < patterns_[best->stop].text.size());
      if (better) best = Match{begin, p};
    }
  }
  read_ += text.size();
  return best;
}

size_t StopMatcher::held() const {
  size_t held = 0;
  for (const Pattern& pattern : patterns_) held = std::max(held, pattern.matched);
  return held;
}

}  // namespace renga
