// EngineSnapshot: what the engine thread tells the others about itself, once per step.
//
// Thread safety: the engine thread publishes, any thread reads.

#pragma once

#include <cstdint>

#include "base/mutex.h"
#include "renga/types.h"

namespace renga {

struct EngineSnapshot {
  TimePoint last_progress{};   // End of the last step, or start of the last idle wait.
  bool busy = false;           // Work is running or waiting inside the engine.
  int64_t running = 0;         // Sequences.
  int64_t waiting = 0;         // Requests taken from the queue and not yet admitted.
  int64_t waiting_tokens = 0;  // Their prompt tokens.
  int64_t request_bytes = 0;   // Booked by the requests that have not ended.
  int64_t steps = 0;           // Since start.
  int64_t pages_total = 0;
  int64_t pages_free = 0;
  int64_t pages_cached = 0;  // Held by the prefix cache alone.
  int64_t max_sequences = 0;

  // ---- For predictions; all 0 until measured.
  int64_t decoding = 0;        // Running sequences that answer.
  int64_t prefill_tokens = 0;  // Of the running sequences, still to compute.
  Duration decode_step{};      // One step of the sequences that decode now, alone.
  int64_t slice_rows = 0;      // Prompt rows that join such a step...
  Duration slice_step{};       // ... and how long it then takes.
  int64_t full_rows = 0;       // Prompt rows of a step without decoding sequences...
  Duration full_step{};        // ... and how long that takes.
  Duration residence{};        // How long a sequence holds its place, lately.
  double cached_share = 0.0;   // Of the prompt tokens lately taken, found in the cache.
  double busy_share = 0.0;     // Time inside steps over the last seconds.
};

class SnapshotBoard {
 public:
  void Publish(const EngineSnapshot& snapshot) RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    snapshot_ = snapshot;
  }
  EngineSnapshot Read() const RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return snapshot_;
  }

 private:
  mutable Mutex mutex_;
  EngineSnapshot snapshot_ RENGA_GUARDED_BY(mutex_);
};

}  // namespace renga
