// StepPlan: what one step computes, as plain data from scheduler to engine.

#pragma once

#include <cstdint>
#include <vector>

#include "engine/step_cost.h"

namespace renga {

// Consecutive tokens of one sequence. `sequence` is an index into the scheduler's input.
struct PlannedRows {
  int32_t sequence = 0;
  int32_t rows = 0;
  bool samples = false;  // The last row is the last known token: its logits are wanted.
  bool decodes = false;  // One token of an answer; otherwise a slice of a prompt.
};

struct StepPlan {
  std::vector<PlannedRows> rows;   // Decoding ones first, oldest first.
  std::vector<int32_t> preempted;  // Give up their pages and wait again, before the step.
  std::vector<int32_t>
      pool_full;  // Alone and still too large: end with StopCause::kPool.
  int32_t total_rows = 0;
  StepShape shape;        // Of `rows`: what the step is predicted by.
  int64_t new_pages = 0;  // That `rows` need beyond those held.

  void Clear() {
    rows.clear();
    preempted.clear();
    pool_full.clear();
    total_rows = 0;
    shape = {};
    new_pages = 0;
  }
};

}  // namespace renga
