// SlidingQuantiles: quantiles of what was observed within the last minute.
//
// A histogram with bins 5 % wide, from 10 us to 10 minutes, so that a quantile is off by
// at most 2.5 % of its value; what is smaller or larger is counted in the outermost bins.
// A ring holds one histogram per slice of 5 s; a slice that is older than the window is
// emptied when its place is needed. The window thus covers the last 55 to 60 s.
//
// It has no clock: whoever observes says when. Times may come a little out of order; what
// is older than the window is dropped.
//
// Thread safety: none; about 18 KB, fixed at construction. Observe is a few operations,
// Quantiles some thousand additions.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "renga/types.h"

namespace renga {

class SlidingQuantiles {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(60);

  SlidingQuantiles();

  void Observe(Duration value, TimePoint now);

  // The smallest value that at least the share q of the observations do not exceed, in
  // seconds, for each q in (0, 1]; 0 where nothing was observed.
  void Quantiles(TimePoint now, std::span<const double> q, std::span<double> seconds);

 private:
  static constexpr int64_t kSlices = 12;
  static constexpr Duration kSlice = kWindow / kSlices;

  struct Slice {
    int64_t number = -1;           // Slices since the clock's zero; -1: never used.
    std::vector<uint32_t> counts;  // [bins]
  };

  static int64_t NumberOf(TimePoint now);

  std::array<Slice, kSlices> slices_;
  int64_t newest_ = -1;
  std::vector<uint64_t> merged_;  // [bins]; scratch of Quantiles.
};

}  // namespace renga
