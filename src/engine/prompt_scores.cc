#include "engine/prompt_scores.h"

#include "base/check.h"

namespace renga {

void PromptScores::Reserve(int64_t prompt_tokens, int32_t top) {
  scores_.resize(static_cast<size_t>(prompt_tokens - 1));
  for (TokenLogprob& score : scores_) score.top.reserve(static_cast<size_t>(top));
}

void PromptScores::Add(int64_t row, const SampleResult& result) {
  if (row < known_) return;
  RENGA_CHECK(row == known_ && !complete());
  TokenLogprob& score = scores_[static_cast<size_t>(row)];
  score.token = result.token;
  score.logprob = result.logprob;
  score.top.assign(result.top.begin(), result.top.end());
  ++known_;
}

}  // namespace renga
