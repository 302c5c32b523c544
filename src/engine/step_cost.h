// StepCost: what a step costs, fitted to what was measured: base + rows * per_row.
//
// A Theil-Sen fit (median of the slopes between pairs of samples) over the last 32 steps:
// a step that the machine interrupted does not move it. Refitted every 8 samples, about
// 10 us. No allocation.
//
// Thread safety: none; the engine thread's.

#pragma once

#include <array>
#include <cstdint>

#include "renga/types.h"

namespace renga {

class StepCost {
 public:
  void Add(int64_t rows, Duration elapsed);

  Duration base() const { return base_; }
  Duration per_row() const { return per_row_; }

 private:
  static constexpr size_t kSamples = 32;
  struct Sample {
    int64_t rows = 0;
    int64_t nanoseconds = 0;
  };

  void Fit();

  std::array<Sample, kSamples> samples_{};
  std::array<double, kSamples*(kSamples - 1) / 2> scratch_{};
  uint64_t added_ = 0;
  Duration base_{};
  Duration per_row_{};
};

}  // namespace renga
