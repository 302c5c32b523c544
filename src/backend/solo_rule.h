// SoloRule: when the machine takes the other cores away, compute alone for a while.
//
// Beside a busy neighbour a region waits for a worker that is not running. The rule looks
// at the caller's own clocks: over windows of at least 20 ms of compute, a CPU time more
// than 20 % below the wall time means that time was lost to waiting. Then the caller
// works alone for 60 ms, probes again with all workers, and doubles the time alone (up to
// 500 ms) each time the probe fails.
//
// Pure: no clock, no thread; tested with made-up times. Thread rule: one thread.

#pragma once

#include <algorithm>

#include "renga/types.h"

namespace renga {

class SoloRule {
 public:
  // Some compute took `wall`, of which this thread ran `cpu`; it ended at `now`.
  void Add(Duration wall, Duration cpu, TimePoint now) {
    if (solo_) {
      if (now < solo_until_) return;
      solo_ = false;  // Probe: a fresh window with all workers.
      wall_ = cpu_ = Duration{0};
      return;
    }
    wall_ += wall;
    cpu_ += cpu;
    if (wall_ < kWindow) return;
    if (wall_ - cpu_ > wall_ / 5) {
      solo_ = true;
      solo_until_ = now + alone_;
      alone_ = std::min(alone_ * 2, kLongest);
    } else {
      alone_ = kShortest;
    }
    wall_ = cpu_ = Duration{0};
  }

  bool solo() const { return solo_; }

 private:
  static constexpr Duration kWindow = std::chrono::milliseconds(20);
  static constexpr Duration kShortest = std::chrono::milliseconds(60);
  static constexpr Duration kLongest = std::chrono::milliseconds(500);

  Duration wall_{0};
  Duration cpu_{0};
  Duration alone_ = kShortest;
  bool solo_ = false;
  TimePoint solo_until_{};
};

}  // namespace renga
