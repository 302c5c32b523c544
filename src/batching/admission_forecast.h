// AdmissionForecast: when the first token of a request that came now would be there.
//
// Pure: a function of what the engine last told and of what waits. It is the one place
// that predicts: the service asks it before a request enters the queue (not knowing what
// is cached), the engine when it takes the request (knowing it), and GetLoad for a prompt
// of 64 tokens.
//
// The model: the request starts when the last of these has happened, and then computes
// its own prompt.
//   * A place is free. Those ahead take the free ones; further ones come free at
//     `max_sequences` per `residence`.
//   * There are pages for the prompts ahead and its own, and a page of headroom for each
//     sequence. Missing ones come free at `pages_total` per `residence`.
//   * The prompts that run have been computed, and after the window (which counts only
//     while the engine is busy) and the step in flight, half of it on average, those that
//     wait ahead.
// Prompts are computed in steps of `slice_rows` while others decode, of `full_rows`
// otherwise; the last step of a prompt costs as much less as it has fewer rows.
//
// Promises: never falls when more is ahead, runs or is to be computed, or when a step or
// a residence takes longer; never rises with more places, pages, or rows per step.
// Between 0 and one hour, whatever the numbers are. 0 while nothing was measured.
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
// `ahead`. `window`: what is left of it for this request.
Duration PredictFirstToken(const EngineSnapshot& engine, const QueueAhead& ahead,
                           Duration window, int64_t uncached_tokens);

}  // namespace renga
