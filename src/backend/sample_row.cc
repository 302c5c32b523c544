// See sample_row.h.

#include "backend/sample_row.h"

#include <algorithm>
#include <cmath>

#include "backend/sample_spec.h"
#include "kernels/logprobs.h"

namespace renga {

namespace {

// The token, or -1 where nothing can be drawn.
TokenId DrawToken(const CpuOps& ops, std::span<const float> logits,
                  const SampleSpec& spec, const SampleRowSpace& space) {
  const int64_t vocab = static_cast<int64_t>(logits.size());
  if (EditsLogits(spec)) {
    // What is edited may hide a value that is not finite.
    const float max = ScanLogits(ops, logits.data(), vocab, space.scratch);
    if (std::isnan(max)) return -1;
    std::copy(logits.begin(), logits.end(), space.edited.begin());
    EditLogits(spec, space.edited);
    logits = space.edited;
  }
  return SampleToken(ops,
                     {.logits = logits.data(),
                      .vocab = vocab,
                      .temperature = spec.temperature,
                      .top_k = spec.top_k,
                      .typical_p = spec.typical_p,
                      .top_p = spec.top_p,
                      .min_p = spec.min_p,
                      .seed = spec.seed,
                      .choice = spec.choice,
                      .token_index = spec.token_index},
                     space.scratch);
}

}  // namespace

SampleResult SampleRow(const CpuOps& ops, std::span<const float> logits,
                       const SampleSpec& spec, const SampleRowSpace& space) {
  SampleResult result{.token = spec.given >= 0 ? spec.given
                                               : DrawToken(ops, logits, spec, space)};
  result.finite = result.token >= 0;
  if (!result.finite || (spec.given < 0 && spec.logprobs < 0)) return result;
  ScoredToken best[kMaxTopLogprobs];
  const LogprobResult logprobs =
      TokenLogprobs(ops,
                    {.logits = logits.data(),
                     .vocab = static_cast<int64_t>(logits.size()),
                     .token = result.token,
                     .top = std::max(spec.logprobs, 0),
                     .out = best},
                    space.scratch);
  result.finite = logprobs.finite;
  if (spec.logprobs < 0) return result;
  result.logprob = logprobs.logprob;
  for (size_t i = 0; i < static_cast<size_t>(logprobs.top); ++i) {
    space.top[i] = {.token = best[i].token, .logprob = best[i].logprob};
  }
  result.top = space.top.first(static_cast<size_t>(logprobs.top));
  return result;
}

}  // namespace renga
