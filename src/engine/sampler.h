// Sampler: from a sequence to the backend's order to draw one token, and back.
//
// The draw depends on the request's own parameters, its seed, the choice and the index of
// the token in the answer: never on neighbours, on the row or on the step.

#pragma once

#include <cstdint>

#include "engine/sequence.h"
#include "renga/backend.h"

namespace renga {

// The next token of `sequence`. `logit_row`: index into the step's logit rows. The
// sequence must stay as it is until the backend has sampled.
SampleSpec MakeSampleSpec(const Sequence& sequence, int32_t logit_row);

// The log-probability of the prompt's token after position `row`.
// REQUIRES: row + 1 < prompt_tokens.
SampleSpec MakeScoreSpec(const Sequence& sequence, int64_t row, int32_t logit_row);

// OK if `result` is a token of the vocabulary; otherwise why this request alone fails.
Status CheckSample(const SampleResult& result, int64_t vocab);

}  // namespace renga
