// What a SampleSpec does to a row of logits before a token is drawn, and whether it may
// be obeyed at all. For every backend whose logits are in memory.
//
// Thread safety: plain functions.

#pragma once

#include <cstdint>
#include <span>

#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

// InvalidArgument with the field that reaches outside the step or the vocabulary.
Status CheckSampleSpec(const SampleSpec& spec, int64_t logit_rows, int64_t vocab);

// A whole call of Backend::Sample: each spec as above, at most `most` of them (field
// specs), and a place for each result.
Status CheckSampleCall(std::span<const SampleSpec> specs,
                       std::span<const SampleResult> results, int64_t most,
                       int64_t logit_rows, int64_t vocab);

// Whether the draw needs other logits than those of the row.
bool EditsLogits(const SampleSpec& spec);

// In this order, each in float:
//   logit_bias: added
//   repetition_penalty, tokens of the history: positive logits are divided by it, others
//     multiplied
//   frequency and presence penalty, tokens of the answer: logit -= frequency * in_answer,
//     then -= presence
//   banned: -inf, whatever else is asked for the token
// A logit that overflows to +inf becomes the largest float. logits: [vocab], without NaN.
void EditLogits(const SampleSpec& spec, std::span<float> logits);

}  // namespace renga
