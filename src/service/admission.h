// Whether the first token of a request can come in time, and if not, when to come back.
//
// The decision alone: what is predicted comes from PredictFirstToken, what the time is
// from the caller.
//
// Thread safety: free functions without state.

#pragma once

#include <optional>

#include "renga/status.h"
#include "renga/types.h"

namespace renga {

// When the first token of a request must be there.
struct FirstTokenBounds {
  TimePoint arrival{};
  std::optional<TimePoint> deadline{};  // The request's own, of the whole answer.
  Duration limit{};                     // The server's, from arrival; 0: none.
};

// RESOURCE_EXHAUSTED, with the numbers and with a delay, if a first token that comes
// `predicted` after `now` breaks a bound. `predicted` 0: nothing was measured yet, so
// nothing is refused.
Status CheckFirstToken(const FirstTokenBounds& bounds, TimePoint now, Duration predicted);

// What a client is told to wait if `delay` from now its request might be taken: neither
// so short that all of them come back at once, nor longer than a forecast can know.
Duration RetryDelay(Duration delay);

}  // namespace renga
