// RequestLimits: what a request must keep for the engine to take it.
//
// The service has checked all this with friendlier words; nothing that enters the queue
// may end the process or block the others, so the engine trusts nobody.
//
// Pure.

#pragma once

#include <cstdint>

#include "batching/engine_request.h"
#include "renga/status.h"

namespace renga {

struct RequestLimits {
  int64_t context = 0;
  int64_t vocab = 0;
  int64_t pages = 0;  // Of the KV pool.
  int32_t max_sequences = 0;
};

// OK, or what is wrong, with the field's name.
Status CheckEngineRequest(const EngineRequest& request, const RequestLimits& limits);

}  // namespace renga
