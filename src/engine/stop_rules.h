// StopRules: whether a sampled token ends the answer.
//
// Pure. The order matters where several apply at once: an end token as exactly the
// last allowed one is a stop, not a length; a token that the sink stops at as well.

#pragma once

#include <cstdint>

#include "batching/engine_request.h"

namespace renga {

struct StopDecision {
  FinishReason reason = FinishReason::kNone;  // kNone: go on.
  StopCause cause = StopCause::kNone;

  bool stops() const { return reason != FinishReason::kNone; }
};

// Before delivery: an end or stop token is counted, but it is not part of the answer.
StopDecision StopAtToken(const EngineRequest& request, TokenId token);

// After delivery, with `generated` tokens sampled so far.
StopDecision StopAtLength(const EngineRequest& request, int64_t generated);

}  // namespace renga
