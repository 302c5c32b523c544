// Finds stop strings in text that arrives in parts.
//
// Of several matches the one that starts first wins, whatever their order in the list; of
// those that start together the shortest. Only the longest suffix that is a proper prefix
// of a stop string has to wait for more text. One pass (Knuth-Morris-Pratt) per stop
// string: linear in the text.
//
// Thread rule: one caller at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace renga {

class StopMatcher {
 public:
  struct Match {
    size_t begin = 0;  // Offset in all the text so far.
    size_t stop = 0;   // Index into the list of stop strings.
  };

  // Empty stop strings never match.
  explicit StopMatcher(std::vector<std::string> stops);

  // Reads on; the best match among those that `text` completes, if it completes any.
  std::optional<Match> Feed(std::string_view text);

  // Bytes at the end of the text so far that may become part of a match.
  size_t held() const;
  size_t longest() const { return longest_; }
  const std::string& stop(size_t index) const { return patterns_[index].text; }

 private:
  struct Pattern {
    std::string text;
    std::vector<uint32_t> border;  // [i]: longest proper border of the first i bytes.
    size_t matched = 0;            // Bytes of `text` that the input ends with.
  };

  // Reads one byte; true if the pattern ends with it.
  static bool Advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;
  size_t longest_ = 0;
  size_t read_ = 0;
};

}  // namespace renga
