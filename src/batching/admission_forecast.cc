#include "batching/admission_forecast.h"

namespace renga {

Duration PredictFirstToken(const EngineSnapshot& engine, const QueueAhead& ahead,
                           Duration /*window*/, int64_t uncached_tokens) {
  if (engine.full_rows == 0) return Duration{};
  const int64_t tokens = ahead.tokens + uncached_tokens + engine.prefill_tokens;
  return engine.full_step * tokens / engine.full_rows;
}

}  // namespace renga
