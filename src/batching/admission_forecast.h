// AdmissionForecast: when the first token of a request that came now would be there.
//
// Pure: a function of what the engine last told and of what waits. It is the one place
// that predicts: the service asks it before a request enters the queue (not knowing what
// is cached), the engine when it takes the request (knowing it), and GetLoad for a prompt
// of 64 tokens.
//
// Thread safety: free functions without state.

#pragma once

#include <cstdint>

#include "batching/engine_snapshot.h"
#include "renga/types.h"

namespace renga {

// What is ahead of the request and not yet in the snapshot's running sequences.
struct QueueAhead {
  int64_t requests = 0;
  int64_t tokens = 0;  // To compute; cached ones left aside where that is known.
};

// From now to the first token of a prompt with `uncached_tokens` to compute, behind
// `ahead`: the wait for the window, for a place, for the prompts before it, and its own.
// 0 while nothing was measured.
Duration PredictFirstToken(const EngineSnapshot& engine, const QueueAhead& ahead,
                           Duration window, int64_t uncached_tokens);

}  // namespace renga
