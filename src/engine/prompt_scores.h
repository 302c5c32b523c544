// PromptScores: the log-probabilities of a prompt's own tokens, collected step by step.
//
// The logits of row p (the token at position p) give the log-probability of the token at
// p + 1, so a prompt of P tokens has P - 1 scores, from rows 0 to P - 2. Each row counts
// once: one that is computed again, after a preemption, has the same bits and is ignored.
//
// Thread safety: none; the engine thread's. Nothing is allocated after Reserve.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "renga/backend.h"
#include "renga/request.h"

namespace renga {

class PromptScores {
 public:
  // Wants the scores of a prompt of so many tokens, with `top` alternatives each. Without
  // this call none are wanted.
  void Reserve(int64_t prompt_tokens, int32_t top);

  // What the backend said of the token after `row`. REQUIRES: row <= known().
  void Add(int64_t row, const SampleResult& result);

  // Rows [0, known()) have their scores.
  int64_t known() const { return known_; }
  bool complete() const { return known_ == static_cast<int64_t>(scores_.size()); }
  // [prompt_tokens - 1]. REQUIRES: complete.
  std::span<const TokenLogprob> all() const { return scores_; }

 private:
  std::vector<TokenLogprob> scores_;
  int64_t known_ = 0;
};

}  // namespace renga
