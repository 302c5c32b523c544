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
  int64_t steps = 0;           // Since start.
  int64_t pages_total = 0;
  int64_t pages_free = 0;
  // Measured cost of a step: step_base + rows * step_per_row.
  Duration step_base{};
  Duration step_per_row{};
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
