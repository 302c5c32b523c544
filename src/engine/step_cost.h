// StepCost: predicts how long a step takes from what it computes, fitted to the steps
// that were measured.
//
// Thread safety: none; the engine thread's. No allocation after construction.

#pragma once

#include <cstdint>
#include <memory>

#include "renga/types.h"

namespace renga {

// What a step computes, as far as its length depends on it.
struct StepShape {
  int64_t rows = 0;
  int64_t logit_rows = 0;
  int64_t attended = 0;  // Sum over the rows of the positions that each may see.
};

class StepCost {
 public:
  StepCost();
  ~StepCost();

  void Add(const StepShape& shape, Duration elapsed);

  // 0 until a step was measured.
  Duration Predict(const StepShape& shape) const;

  // The most prompt rows, of a sequence whose first of them stands at `position`, that a
  // step of `shape` may take in addition and still be predicted to end within `limit`; at
  // least 1, at most `most`. `most` until a step was measured.
  int64_t RowsWithin(Duration limit, const StepShape& shape, int64_t position,
                     int64_t most) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace renga
