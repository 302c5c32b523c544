#include "engine/sampler.h"

#include <algorithm>

#include "engine/request_group.h"

namespace renga {

SampleSpec MakeSampleSpec(const Sequence& sequence, int32_t logit_row) {
  const EngineRequest& request = sequence.request();
  const SamplingParams& params = request.sampling;
  return {.logit_row = logit_row,
          .temperature = params.temperature,
          .top_k = std::max(0, params.top_k),
          .typical_p = params.typical_p,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .repetition_penalty = params.repetition_penalty,
          .presence_penalty = params.presence_penalty,
          .frequency_penalty = params.frequency_penalty,
          .logit_bias = params.logit_bias,
          .history = sequence.history(),
          .banned = sequence.group().banned(sequence.generated()),
          .given = -1,
          .logprobs = request.logprobs,
          .seed = request.seed,
          .choice = static_cast<uint32_t>(sequence.choice()),
          .token_index = static_cast<uint32_t>(sequence.generated())};
}

SampleSpec MakeScoreSpec(const Sequence& sequence, int64_t row, int32_t logit_row) {
  return {.logit_row = logit_row,
          .given = sequence.prompt()[static_cast<size_t>(row) + 1],
          .logprobs = sequence.request().prompt_logprobs};
}

Status CheckSample(const SampleResult& result, int64_t vocab) {
  if (!result.finite) return Internal("the model's logits are not finite");
  if (result.token < 0 || result.token >= vocab) {
    return Internal("a sampled token is outside the vocabulary");
  }
  return OkStatus();
}

}  // namespace renga
