// Sampler: from a sequence to the backend's order to draw one token, and back.
//
// The draw depends on the request's own parameters, its seed and the index of the token
// in the answer: never on neighbours, on the row or on the step.

#pragma once

#include <cstdint>

#include "engine/sequence.h"
#include "renga/backend.h"

namespace renga {

// `logit_row`: index into the step's logit rows.
SampleSpec MakeSampleSpec(const Sequence& sequence, int32_t logit_row);

// OK if `result` is a token of the vocabulary; otherwise why this request alone fails.
Status CheckSample(const SampleResult& result, int64_t vocab);

}  // namespace renga
