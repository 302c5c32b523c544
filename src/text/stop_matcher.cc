#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace renga {

StopMatcher::StopMatcher(std::vector<std::string> stops) : matched_(stops.size(), 0) {
  std::vector<Pattern> patterns;
  patterns.reserve(stops.size());
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
    patterns.push_back(std::move(pattern));
  }
  patterns_ = std::make_shared<const std::vector<Pattern>>(std::move(patterns));
}

bool StopMatcher::Advance(const Pattern& pattern, uint32_t& matched, char byte) {
  while (matched > 0 && pattern.text[matched] != byte) matched = pattern.border[matched];
  if (pattern.text[matched] == byte) ++matched;
  if (matched < pattern.text.size()) return false;
  matched = pattern.border[matched];
  return true;
}

std::optional<StopMatcher::Match> StopMatcher::Feed(std::string_view text) {
  std::optional<Match> best;
  for (size_t p = 0; p < patterns_->size(); ++p) {
    const Pattern& pattern = (*patterns_)[p];
    if (pattern.text.empty()) continue;
    for (size_t i = 0; i < text.size(); ++i) {
      if (!Advance(pattern, matched_[p], text[i])) continue;
      const size_t begin = read_ + i + 1 - pattern.text.size();
      const bool better =
          !best || begin < best->begin ||
          (begin == best->begin && pattern.text.size() < stop(best->stop).size());
      if (better) best = Match{begin, p};
    }
  }
  read_ += text.size();
  return best;
}

size_t StopMatcher::held() const {
  return matched_.empty() ? 0 : *std::max_element(matched_.begin(), matched_.end());
}

}  // namespace renga
