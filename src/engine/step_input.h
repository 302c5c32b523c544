// StepInput: the rows of one step, put together for model and backend, and who gets which
// of the results.
//
// Use: Clear, Add for each sequence of the plan, Finish; then batch() and specs() are
// complete, and results() is there to be filled.
//
// One entry's specs stand together: first the scores of its prompt rows, then what is
// drawn: one token of the sequence itself, or, where the last row of a prompt stands for
// n choices, the first token of each of them. There may be more choices than the backend
// takes specs: then the first ones are drawn, and `draws` says how many.
//
// Thread safety: none; the engine thread's. Sized once; nothing is allocated later.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "engine/step_cost.h"
#include "renga/backend.h"

namespace renga {

// The rows of one sequence in a step.
struct StepEntry {
  Sequence* sequence = nullptr;
  int32_t rows = 0;
  bool samples = false;  // The last row is the last known token.
  bool decodes = false;  // One token of an answer; otherwise a slice of a prompt.
  size_t first_spec = 0;
  size_t scores = 0;  // Specs of prompt rows; the first one is row `first_score_row`.
  int64_t first_score_row = 0;
  size_t draws = 0;  // Specs that draw a token; the first one is for the sequence itself.
};

class StepInput {
 public:
  explicit StepInput(const BackendLimits& limits);

  void Clear();
  // REQUIRES: the sequence has pages for its next `rows` positions.
  void Add(Sequence& sequence, int32_t rows, bool samples, bool decodes);
  // After the last Add.
  void Finish();

  std::span<const StepEntry> entries() const { return entries_; }
  StepBatch batch() const {
    return {.tokens = tokens_, .sequences = rows_, .logit_rows = logit_rows_};
  }
  StepShape shape() const;
  std::span<const SampleSpec> specs() const { return specs_; }
  std::span<SampleResult> results() { return results_; }
  std::span<const SampleResult> scores_of(const StepEntry& entry) const {
    return std::span(results_).subspan(entry.first_spec, entry.scores);
  }
  std::span<const SampleResult> draws_of(const StepEntry& entry) const {
    return std::span(results_).subspan(entry.first_spec + entry.scores, entry.draws);
  }

 private:
  void AddLogitRow(size_t row) { logit_rows_.push_back(static_cast<int32_t>(row)); }

  const size_t most_specs_;
  std::vector<StepEntry> entries_;     // [sequences of the step]
  std::vector<TokenId> tokens_;        // [rows]
  std::vector<SequenceRows> rows_;     // [sequences of the step]
  std::vector<int32_t> logit_rows_;    // [logit rows]
  std::vector<SampleSpec> specs_;      // At least one per logit row.
  std::vector<SampleResult> results_;  // [specs]
  int64_t attended_ = 0;
};

}  // namespace renga
