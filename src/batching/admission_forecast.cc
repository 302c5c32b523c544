#include "batching/admission_forecast.h"

#include <algorithm>

#include "renga/backend.h"

namespace renga {
namespace {

// Everything is cut off at these, so that no product of two overflows.
constexpr Duration kMost = std::chrono::hours(1);  // Below 2^42 ns.
constexpr int64_t kMostCount = int64_t{1} << 20;   // Requests, places, pages, rows.
constexpr int64_t kMostTokens = int64_t{1} << 40;

Duration Bounded(Duration value) { return std::clamp(value, Duration{}, kMost); }
int64_t BoundedCount(int64_t value) { return std::clamp<int64_t>(value, 0, kMostCount); }
int64_t BoundedTokens(int64_t value) {
  return std::clamp<int64_t>(value, 0, kMostTokens);
}

// Of steps that take `step` with `rows` prompt rows, and `least` without any.
Duration TimeInSteps(int64_t tokens, int64_t rows, Duration step, Duration least) {
  rows = BoundedCount(rows);
  if (rows == 0) return Duration{};
  least = Bounded(least);
  step = std::max(Bounded(step), least);
  const int64_t full = tokens / rows;
  const int64_t rest = tokens % rows;
  if (step > Duration{} && full >= kMost / step) return kMost;
  Duration time = step * full;
  if (rest > 0) time += least + (step - least) * rest / rows;
  return std::min(time, kMost);
}

Duration TimeToCompute(int64_t tokens, const EngineSnapshot& engine) {
  const Duration alone =
      TimeInSteps(tokens, engine.full_rows, engine.full_step, engine.decode_step);
  if (engine.decoding <= 0) return alone;
  const Duration beside =
      TimeInSteps(tokens, engine.slice_rows, engine.slice_step, engine.decode_step);
  return std::max(alone, beside);  // Company makes nothing faster.
}

// Until `missing` come free of `total` that are held for `residence` each.
Duration TimeToFree(int64_t missing, int64_t total, Duration residence) {
  total = BoundedCount(total);
  if (missing <= 0 || total == 0) return Duration{};
  return std::min(Bounded(residence) * BoundedCount(missing) / total, kMost);
}

}  // namespace

Duration PredictFirstToken(const EngineSnapshot& engine, const QueueAhead& ahead,
                           Duration window, int64_t uncached_tokens) {
  if (engine.full_rows <= 0) return Duration{};
  const int64_t own = BoundedTokens(uncached_tokens);
  const int64_t before = BoundedTokens(ahead.tokens);
  const int64_t running = BoundedCount(engine.running);
  const int64_t sequences = running + BoundedCount(ahead.requests) + 1;

  const int64_t places = BoundedCount(engine.max_sequences);
  const Duration place = TimeToFree(sequences - places, places, engine.residence);

  const int64_t pages =
      BoundedCount(engine.pages_free) + BoundedCount(engine.pages_cached);
  const Duration memory = TimeToFree(PagesFor(before + own) + sequences - pages,
                                     engine.pages_total, engine.residence);

  Duration turn = TimeToCompute(BoundedTokens(engine.prefill_tokens), engine);
  if (engine.busy) turn = std::max(turn, Bounded(window));
  turn += TimeToCompute(before, engine);
  if (engine.decoding > 0) turn += Bounded(engine.decode_step) / 2;

  const Duration start = std::max({place, memory, turn});
  return std::min(start + TimeToCompute(own, engine), kMost);
}

}  // namespace renga
