// Who comes before whom on a device with streams, and who touches memory together without
// an order. For LazyDevice.
//
// A line is what runs in order: the host, a stream, a branch of a graph. Each operation
// has a number on its line and a clock: up to which number it comes after each line.
//
// Thread safety: none.

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/simt/simt.h"

namespace renga::test {

enum class LineId : int32_t {};
inline constexpr LineId kHostLine{0};

class LineClock {
 public:
  int64_t Of(LineId line) const {
    const auto i = static_cast<size_t>(line);
    return i < numbers_.size() ? numbers_[i] : 0;
  }
  void Set(LineId line, int64_t number) {
    const auto i = static_cast<size_t>(line);
    if (i >= numbers_.size()) numbers_.resize(i + 1, 0);
    numbers_[i] = number;
  }
  // From now on after what the other is after, too.
  void Join(const LineClock& other) {
    if (numbers_.size() < other.numbers_.size()) {
      numbers_.resize(other.numbers_.size(), 0);
    }
    for (size_t i = 0; i < other.numbers_.size(); ++i) {
      numbers_[i] = std::max(numbers_[i], other.numbers_[i]);
    }
  }

 private:
  std::vector<int64_t> numbers_;
};

struct Moment {
  LineId line{};
  int64_t number = 0;
  LineClock after;  // Itself included.

  bool ComesAfter(const Moment& other) const {
    return after.Of(other.line) >= other.number;
  }
};

// What one operation did to memory.
struct Access {
  Moment when;
  std::string who;  // "kernel kAdd (call 7)"
  std::vector<MemoryRange> reads;
  std::vector<MemoryRange> writes;
};

// Ascending, apart, none empty.
std::vector<MemoryRange> MergeRanges(std::vector<MemoryRange> ranges);

// The accesses that something may still race with, and the races that were found.
class AccessHistory {
 public:
  // `describe` says where an address lies, for reports.
  explicit AccessHistory(std::function<std::string(const char* at)> describe = {})
      : describe_(std::move(describe)) {}

  // Compares it with all that is here.
  void Add(Access access);
  // Drops what both the host and every one of `pending` come after.
  void Forget(const LineClock& host, const std::vector<const Moment*>& pending);

  // Each pair of parties once.
  const std::vector<std::string>& races() const { return races_; }
  size_t size() const { return accesses_.size(); }

 private:
  void Compare(const Access& first, const Access& second);

  const std::function<std::string(const char* at)> describe_;
  std::vector<Access> accesses_;
  std::vector<std::string> races_;
  std::set<std::pair<std::string, std::string>> reported_;
};

}  // namespace renga::test
