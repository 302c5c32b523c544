// Warm-up: ten requests of 1 to 256 tokens through the whole path, so that the first real
// request finds memory touched, threads awake, template and vocabulary read, and the cost
// of steps measured: some run alone, the others together.
//
// They leave no pages in the prefix cache and no traces in the metrics of requests; each
// one's times are one line in the log.
//
// Thread rule: called once, from the thread that starts the server.

#pragma once

#include <functional>

#include "renga/status.h"
#include "service/generation_service.h"

namespace renga {

// Lengths are cut to what the context and the pool of `kv_pages` hold. Stops between two
// rounds when `cancelled` says so.
Status WarmUp(GenerationServiceImpl& service, int64_t kv_pages,
              const std::function<bool()>& cancelled);

}  // namespace renga
