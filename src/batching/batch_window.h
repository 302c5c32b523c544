// BatchWindow: decides which waiting requests leave now, in which batches, and when to
// look again.
//
// This class is the decision alone: it owns no clock, thread or device, so every rule is
// tested with made-up times. The engine drives it once per step border.
//
// When the waiting requests are let go (policy kWindow):
//   * the engine is idle and `leave_when_idle` is set: at once;
//   * more than `queue_threshold` wait: at once;
//   * the oldest has waited `window` since its arrival: all of them together.
//   As an idle engine lets everybody go, the window runs only while the engine is busy.
//   kContinuous lets everybody go at once; kSerial lets one go when nothing runs.
//   A request that was preempted has been let go once and does not wait again.
// Who of them leaves: first in, first out, at most `max_batch` at a time and up to
//   `max_sequences` running, and only what fits the memory: the pages of its uncached
//   prompt plus one page of headroom for every running sequence (those that leave with it
//   count) must be free or evictable. A request that does not fit may be overtaken by at
//   most `max_overtakes` later ones over its whole wait; then nobody passes it until it
//   has left. Nobody ever passes a preempted one.
// In which batches: sorted by uncached length, cut where a length exceeds
//   max(2 * s, s + 64), s being the shortest of its batch.
// Pressure: each NotePressure halves the largest batch; it grows by one per quiet second.
//
// Thread safety: none; only the engine thread calls it.
// Invariants: an id waits at most once; `waiting_` holds the preempted ones first, by
// first arrival, then the others in order of Add.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "renga/request.h"
#include "renga/status.h"
#include "renga/types.h"

namespace renga {

enum class BatchPolicy { kWindow, kContinuous, kSerial };
// "window", "continuous", "serial"; anything else is refused.
StatusOr<BatchPolicy> ParseBatchPolicy(std::string_view name);

struct BatchWindowOptions {
  BatchPolicy policy = BatchPolicy::kWindow;
  Duration window = std::chrono::milliseconds(50);
  int32_t queue_threshold = 8;
  bool leave_when_idle = true;
  int32_t max_batch = 32;      // Requests that leave together.
  int32_t max_sequences = 64;  // Running at the same time.
  int32_t max_overtakes = 8;   // Later requests that may pass one that does not fit.
  Duration aging = std::chrono::seconds(1);  // Waiting so long lifts by one priority.
  int64_t tenant_quantum_tokens = 256;       // Of a tenant's turn in the fair share.
};

// A request as far as the decision needs it.
struct WindowRequest {
  RequestId id{};
  int64_t uncached_tokens = 0;  // To compute before the first token; the order's length.
  int64_t pages = 0;            // That admitting it takes from free or evictable ones.
  int32_t sequences = 1;        // Running places: the n of the request.
  TimePoint arrival{};
  Priority priority = Priority::kNormal;
  std::string tenant{};
};

// What the decision needs to know of the engine.
struct EngineState {
  bool busy = false;            // Some sequence can compute.
  int64_t free_pages = 0;       // Not held and not promised to an admitted prompt.
  int64_t evictable_pages = 0;  // Held, but given up when a running sequence needs them.
  int32_t running = 0;          // Sequences that hold a place.
};

class BatchWindow {
 public:
  using Batch = std::vector<RequestId>;  // Shortest first.

  explicit BatchWindow(const BatchWindowOptions& options);

  // Queues a request behind all earlier ones of its class and tenant.
  void Add(WindowRequest request);
  // Queues a preempted request before all others; `arrival` is its first one.
  void AddPreempted(WindowRequest request);
  // False if `id` does not wait.
  bool Remove(RequestId id);

  // Removes and returns what leaves at `now`, shortest batch first.
  std::vector<Batch> TakeReady(TimePoint now, const EngineState& state);

  // When TakeReady would let go of somebody who is still held by the window; nullopt:
  // only another call (something arrived, ended or gave back pages) can change anything.
  std::optional<TimePoint> NextDeadline() const;

  // A page could not be had: smaller batches from here on.
  void NotePressure(TimePoint now);

  int64_t size() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t waiting_tokens() const { return waiting_tokens_; }
  int32_t current_max_batch() const { return max_batch_; }

 private:
  struct Waiting {
    WindowRequest request;
    bool released = false;  // Let go by the window; waits for room only.
    bool preempted = false;
    int32_t overtaken = 0;  // Later requests that left before it.
  };

  void Release(TimePoint now, const EngineState& state);
  // Moves the requests that leave, in order of the queue, to `leaving_`.
  void SelectLeaving(const EngineState& state);
  std::vector<Batch> CutIntoBatches();
  void RelaxPressure(TimePoint now);

  const BatchWindowOptions options_;
  std::vector<Waiting> waiting_;
  std::vector<Waiting> leaving_;  // Empty between calls.
  int64_t waiting_tokens_ = 0;
  int32_t max_batch_;
  TimePoint quiet_since_{};
};

}  // namespace renga
