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
//   kContinuous lets everybody go at once. Who was let go once, a preempted request among
//   them, does not wait for the window again.
//
// Who of them leaves next:
//   * the preempted ones, by first arrival. Nobody ever passes one;
//   * then by class. A request's class is its priority, one higher for each `aging` that
//     it has waited since its arrival, at most kHigh;
//   * inside a class tenants take turns, see FairTurns: `tenant_quantum_tokens` uncached
//     tokens each; a request costs at least 1, so that fully cached ones share as well. A
//     tenant with nothing let go in a class is forgotten there: one that comes back has
//     nothing saved up;
//   * inside a tenant first in, first out.
//   kSerial knows neither class nor tenant: first in, first out, one when nothing runs.
//
// How many: at most `max_batch` at a time, and who has room. A request has room if
//   * its `sequences` and the running ones together are at most `max_sequences` (one that
//     has more than that by itself counts as `max_sequences`);
//   * its `pages` plus one page of headroom for every running sequence are free or
//     evictable. Those that leave with it count as running already.
//
// Overtaking: whose turn came but who had no room keeps the turn: its tenant has paid,
//   and it is tried first in its class until it leaves. Meanwhile smaller ones may pass
//   it, in the order above, but no more than `max_overtakes` over its whole wait; then
//   nobody but preempted ones leaves before it, whatever their class. Those of a higher
//   class go first by right and are not counted. Hence a bound: once its turn has come, a
//   request is passed by at most `max_overtakes` of its own or lower classes, and by
//   higher ones at most until it has waited 2 * aging; then it leaves as soon as enough
//   running sequences have ended, at the latest when none runs. While somebody without
//   room is in front, those behind it that have none either don't get a turn.
//
// In which batches: sorted by uncached length, cut where a length exceeds
//   max(2 * s, s + 64), s being the shortest of its batch.
//
// Pressure: each NotePressure halves the largest batch; it grows by one per quiet second.
//
// Thread safety: none; only the engine thread calls it. A TakeReady in which nobody
// leaves allocates nothing once the ring of tenants has seen its largest size.
// Invariants: an id waits at most once; `waiting_` holds the preempted ones first, by
// first arrival, then the others in order of Add; only tenants with a waiting request
// have a name or savings here.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "batching/fair_turns.h"
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
  int32_t max_overtakes = 8;   // Later requests that may pass one that has no room.
  Duration aging = std::chrono::seconds(1);  // Waiting so long lifts by one; 0: never.
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
  void Add(const WindowRequest& request);
  // Queues a preempted request before all others; `arrival` is its first one.
  void AddPreempted(const WindowRequest& request);
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
  // Of one priority, as the requests came: waiting does not change it here.
  int64_t waiting(Priority priority) const {
    return waiting_of_[static_cast<size_t>(priority)];
  }
  int64_t waiting_tokens() const { return waiting_tokens_; }
  // Names that are remembered: those with a waiting request that was not preempted.
  int64_t tenants() const { return static_cast<int64_t>(tenant_of_name_.size()); }
  int32_t current_max_batch() const { return max_batch_; }

 private:
  static constexpr int32_t kNoTenant = -1;  // Of the preempted: they don't take turns.

  struct Waiting {
    RequestId id{};
    int64_t tokens = 0;
    int64_t pages = 0;
    TimePoint arrival{};
    int32_t sequences = 1;
    int32_t tenant = kNoTenant;  // Index into tenants_.
    int32_t overtaken = 0;       // Others that left before it while it kept its turn.
    Priority priority = Priority::kNormal;
    uint8_t level = 0;  // Its class at this call.
    bool preempted = false;
    bool released = false;  // Let go by the window; waits for room only.
    bool keeps_turn = false;
    bool left = false;  // Only inside a call.
  };
  struct Tenant {
    const std::string* name = nullptr;  // The key in tenant_of_name_; nullptr: unused.
    int64_t waiting = 0;
  };
  // What there is room for in this call.
  struct Room {
    int64_t requests = 0;
    int64_t sequences = 0;
    int64_t pages = 0;
    bool passing = false;  // Somebody in front keeps its turn; who leaves now passes.
  };

  Waiting Enter(const WindowRequest& request);
  // Of what has left `waiting_`, or is about to.
  void Forget(const Waiting& waiting);
  int32_t FindOrAddTenant(const std::string& name);
  void Release(TimePoint now, const EngineState& state);
  // Moves the requests that leave, in order of leaving, to `leaving_`.
  void SelectLeaving(TimePoint now, const EngineState& state);
  void SortByClass(TimePoint now);
  // These return false once nobody further may leave.
  bool TakePreempted(Room& room);
  bool TakeClass(uint8_t level, Room& room);
  bool TakeIfRoom(Waiting& waiting, Room& room);
  bool Leave(Waiting& waiting, Room& room);
  // Whose turn it is in a class, among those with room if `room.passing`; nullptr:
  // nobody.
  Waiting* NextInClass(uint8_t level, const Room& room);
  bool HasRoom(const Waiting& waiting, const Room& room) const;
  int64_t PlacesOf(const Waiting& waiting) const;
  bool Blocks(const Waiting& waiting) const;
  uint8_t LevelOf(const Waiting& waiting, TimePoint now) const;
  std::vector<Batch> CutIntoBatches();
  void RelaxPressure(TimePoint now);

  const BatchWindowOptions options_;
  std::vector<Waiting> waiting_;
  std::vector<Waiting> leaving_;  // Empty between calls.
  int64_t waiting_tokens_ = 0;
  std::array<int64_t, kPriorities> waiting_of_{};

  std::unordered_map<std::string, int32_t> tenant_of_name_;
  std::vector<Tenant> tenants_;
  std::vector<int32_t> unused_tenants_;
  std::vector<FairTurns> turns_;  // [class]

  // Scratch of one call; pointers into waiting_.
  std::array<std::vector<Waiting*>, kPriorities> of_class_;  // Those without a turn yet.
  std::vector<Waiting*> turn_keepers_;
  std::vector<int64_t> costs_;   // [tenant] For FairTurns::Next...
  std::vector<Waiting*> heads_;  // ... and the request that each cost belongs to.

  int32_t max_batch_;
  TimePoint quiet_since_{};
};

}  // namespace renga
