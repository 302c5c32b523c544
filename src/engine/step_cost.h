// StepCost: predicts how long a step takes from what it computes, fitted to the steps
// that were measured.
//
//   predicted = speed * (a + b(rows) + c * logit_rows + d * attended)
//
// b is piecewise linear; all terms are at least 0, so that more work never looks cheaper.
// They are a least-squares fit of relative errors, in which recent steps count more, but
// only among steps of like size: a long time of decoding does not wash out what was
// learned of prompts. `speed` follows the last few steps: how fast the machine is just
// now, beside whatever else runs on it. One step, however late, moves neither by much: as
// an error relative to its own time it counts no more than 1 in the fit.
// Beyond the most rows ever measured, b grows at least in proportion to them.
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

// What `rows` rows attend to, of a sequence whose first of them stands at `position`.
inline constexpr int64_t AttendedBy(int64_t position, int64_t rows) {
  return rows * position + rows * (rows + 1) / 2;
}

class StepCost {
 public:
  StepCost();
  ~StepCost();

  // A step that took no time or computed no row says nothing and is not counted.
  void Add(const StepShape& shape, Duration elapsed);

  // 0 until a step was measured.
  Duration Predict(const StepShape& shape) const;

  // The most prompt rows, of a sequence whose first of them stands at `position`, that a
  // step of `shape` may take in addition and still be predicted to end within `limit`; at
  // least 1, at most `most`. `most` until a step was measured. One of the rows has
  // logits, or each of them if `scored`.
  int64_t RowsWithin(Duration limit, const StepShape& shape, int64_t position,
                     int64_t most, bool scored = false) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace renga
