// What the engine tells the others about itself: metrics and the snapshot.

#include <algorithm>

#include "engine/engine.h"

namespace renga {
namespace {

double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// `rows` more prompt rows at the beginning of a prompt, the last of which is sampled.
StepShape WithPrompt(StepShape shape, int64_t rows) {
  shape.rows += rows;
  shape.logit_rows += 1;
  shape.attended += rows * (rows + 1) / 2;
  return shape;
}

}  // namespace

void Engine::ObserveStep(TimePoint start, TimePoint end) {
  ++steps_;
  last_progress_ = end;
  load_.NoteStep(start, end);
  const StepShape shape = input_.shape();
  const Duration predicted = cost_.Predict(shape);
  if (predicted > Duration{}) {
    metrics_.step_prediction.Observe(Seconds(end - start) / Seconds(predicted));
  }
  cost_.Add(shape, end - start);

  const std::span<const StepEntry> entries = input_.entries();
  const auto decodes = [](const StepEntry& entry) { return entry.decodes; };
  StepPhase phase = StepPhase::kMixed;
  if (std::all_of(entries.begin(), entries.end(), decodes)) phase = StepPhase::kDecode;
  if (std::none_of(entries.begin(), entries.end(), decodes)) phase = StepPhase::kPrefill;
  metrics_.ObserveStep(phase, end - start);
  metrics_.steps.Increment();
  metrics_.engine_busy.Increment(Seconds(end - start));
  metrics_.batch_size.Observe(static_cast<double>(entries.size()));
  metrics_.batch_tokens.Observe(static_cast<double>(shape.rows));
  if (metrics_.flight_recorder.on()) RecordStep(start, end);
}

void Engine::RecordStep(TimePoint start, TimePoint end) {
  slices_.clear();
  FlightRecorder::Step step{.begin = start, .end = end};
  for (const StepEntry& entry : input_.entries()) {
    step.sequences += 1;
    step.rows += static_cast<int32_t>(entry.rows);
    if (entry.decodes) {
      step.decoding += 1;
    } else {
      slices_.push_back({.ticket = entry.sequence->request().ticket, .rows = entry.rows});
    }
  }
  metrics_.flight_recorder.AddStep(step, slices_);
}

void Engine::RecordEnd(const RequestGroup& group, TimePoint now) {
  FlightRecorder& recorder = metrics_.flight_recorder;
  const FlightTicket& ticket = group.request().ticket;
  if (group.paused) recorder.Span(ticket, FlightEvent::kPaused, group.paused_at, now);
  const auto shorter = [](const Sequence& a, const Sequence& b) {
    return a.max_gap < b.max_gap;
  };
  const Sequence& worst =
      *std::max_element(group.choices().begin(), group.choices().end(), shorter);
  if (worst.max_gap == Duration{}) return;
  recorder.Span(ticket, FlightEvent::kWorstGap, worst.max_gap_end - worst.max_gap,
                worst.max_gap_end);
}

// Smaller batches from when the running sequences could not all take their next page.
void Engine::NotePoolPressure() {
  const bool low = store_.available() < static_cast<int64_t>(running_.size());
  if (low && !pool_was_low_) window_.NotePressure(clock_.Now());
  pool_was_low_ = low;
}

void Engine::Publish() {
  const TimePoint now = clock_.Now();
  snapshot_ = Snapshot(now);
  board_.Publish(snapshot_);
  ShowGauges(now);
}

void Engine::ShowGauges(TimePoint now) {
  const auto unix_time = std::chrono::system_clock::now().time_since_epoch();
  metrics_.engine_last_progress.Set(std::chrono::duration<double>(unix_time).count());
  metrics_.requests_running.Set(static_cast<double>(running_requests_));
  for (const Priority priority : {Priority::kHigh, Priority::kNormal, Priority::kLow}) {
    metrics_.SetWaiting(priority, window_.waiting(priority));
  }
  metrics_.queue_tokens.Set(static_cast<double>(queue_.waiting_tokens()));
  metrics_.kv_pages_capacity.Set(static_cast<double>(store_.total()));
  metrics_.kv_pages_used.Set(static_cast<double>(store_.used()));
  metrics_.kv_pages_cached.Set(static_cast<double>(store_.cached()));
  metrics_.max_batch.Set(window_.current_max_batch());
  metrics_.busy_share.Set(load_.busy_share(now));
  if (store_.evictions() > evictions_shown_) {
    metrics_.cache_evictions.Increment(
        static_cast<double>(store_.evictions() - evictions_shown_));
    evictions_shown_ = store_.evictions();
  }
  if (store_.cache_bytes() != cache_bytes_shown_) {
    cache_bytes_shown_ = store_.cache_bytes();
    cache_booking_ = MemoryBooking(MemoryPurpose::kPrefixCache, cache_bytes_shown_);
  }
}

EngineSnapshot Engine::Snapshot(TimePoint now) const {
  EngineSnapshot snapshot{.last_progress = last_progress_,
                          // Not what waits for its reader: that is no lack of progress.
                          .busy = CanCompute() || window_.size() > 0,
                          .running = static_cast<int64_t>(running_.size()),
                          .waiting = window_.size(),
                          .waiting_tokens = window_.waiting_tokens(),
                          .request_bytes = request_bytes_,
                          .steps = steps_,
                          .pages_total = store_.total(),
                          .pages_free = store_.free(),
                          .pages_cached = store_.cached(),
                          .max_sequences = settings_.max_sequences,
                          .residence = load_.residence(),
                          .cached_share = load_.cached_share(),
                          .busy_share = load_.busy_share(now)};
  PredictSteps(snapshot);
  return snapshot;
}

void Engine::PredictSteps(EngineSnapshot& snapshot) const {
  StepShape decode;
  for (const Sequence* sequence : running_) {
    if (sequence->group().paused) continue;
    if (sequence->generated() > 0 && sequence->uncomputed() == 1) {
      decode.rows += 1;
      decode.attended += sequence->computed() + 1;
    } else {
      snapshot.prefill_tokens += sequence->uncomputed();
    }
  }
  decode.logit_rows = decode.rows;
  snapshot.decoding = decode.rows;
  if (cost_.Predict({.rows = 1, .logit_rows = 1, .attended = 1}) == Duration{}) return;
  snapshot.full_rows = limits_.max_rows;
  snapshot.full_step = cost_.Predict(WithPrompt({}, snapshot.full_rows));
  snapshot.slice_rows = snapshot.full_rows;
  snapshot.slice_step = snapshot.full_step;
  if (decode.rows == 0) return;
  snapshot.decode_step = cost_.Predict(decode);
  const int64_t most = std::max<int64_t>(1, limits_.max_rows - decode.rows);
  snapshot.slice_rows =
      settings_.prefill_slice_tokens > 0
          ? std::min<int64_t>(settings_.prefill_slice_tokens, most)
          : cost_.RowsWithin(std::chrono::milliseconds(settings_.max_decode_stall_ms),
                             decode, 0, most);
  snapshot.slice_step = cost_.Predict(WithPrompt(decode, snapshot.slice_rows));
}

}  // namespace renga
