#include "engine/sampler.h"

#include <algorithm>

namespace renga {

SampleSpec MakeSampleSpec(const Sequence& sequence, int32_t logit_row) {
  const SamplingParams& params = sequence.request().sampling;
  return {.logit_row = logit_row,
          .temperature = params.temperature,
          .top_k = std::max(0, params.top_k),
          .top_p = params.top_p,
          .min_p = params.min_p,
          .seed = sequence.request().seed,
          .choice = 0,
          .token_index = static_cast<uint32_t>(sequence.generated())};
}

Status CheckSample(const SampleResult& result, int64_t vocab) {
  if (!result.finite) return Internal("the model's logits are not finite");
  if (result.token < 0 || result.token >= vocab) {
    return Internal("a sampled token is outside the vocabulary");
  }
  return OkStatus();
}

}  // namespace renga
