// Finds stop strings in text that arrives in parts.
//
// Of several matches the one that starts first wins, whatever their order in the list; of
// those that start together the shortest. Only the longest suffix that is a proper prefix
// of a stop string has to wait for more text. One pass (Knuth-Morris-Pratt) per stop
// string: linear in the text.
//
// A copy shares the strings (64 of 256 bytes are 80 KiB with their tables), so one for
// each of many answers costs next to nothing.
//
// Thread rule: one caller at a time for each copy.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  const std::string& stop(size_t index) const { return (*patterns_)[index].text; }

 private:
  struct Pattern {
    std::string text;
    std::vector<uint32_t> border;  // [i]: longest proper border of the first i bytes.
  };

  // Reads one byte after `matched` bytes of the pattern; true if the pattern ends with
  // it.
  static bool Advance(const Pattern& pattern, uint32_t& matched, char byte);

  std::shared_ptr<const std::vector<Pattern>> patterns_;
  std::vector<uint32_t> matched_;  // Bytes of each pattern that the input ends with.
  size_t read_ = 0;
};

}  // namespace renga
