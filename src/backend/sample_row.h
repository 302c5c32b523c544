// What a SampleSpec gives for one row of logits in host memory: the token, and the
// log-probabilities. For every backend.
//
// Thread safety: plain functions; each caller has a workspace of its own.

#pragma once

#include <span>

#include "kernels/ops.h"
#include "kernels/sampling.h"
#include "renga/backend.h"

namespace renga {

struct SampleRowSpace {
  const SampleScratch& scratch;
  std::span<float> edited;    // [vocab]: the logits with bans, biases and penalties.
  std::span<TopLogprob> top;  // [kMaxTopLogprobs]: what SampleResult::top shows.
};

// REQUIRES: CheckSampleSpec is OK. logits: [vocab].
SampleResult SampleRow(const CpuOps& ops, std::span<const float> logits,
                       const SampleSpec& spec, const SampleRowSpace& space);

}  // namespace renga
