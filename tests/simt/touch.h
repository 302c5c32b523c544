// When a thread touched something, and whether that is ordered before another thread's
// access: the clock of a launch, shared by the shadows of shared and global memory.
//
// The clock ticks at every Barrier and every WarpSync. Ordered: the same thread; anything
// before the block's last Barrier; anything of the same warp before its last WarpSync.
// Shuffles, ballots, ldmatrix and mma order nothing.

#pragma once

#include <cstdint>

namespace renga::test {

// A thread of the running block in the eyes of the clock. thread < 0: the whole warp at
// once, as ldmatrix reads.
struct Toucher {
  int16_t thread = 0;
  int16_t warp = 0;
  uint32_t warp_tick = 0;     // Of its last WarpSync, or Barrier.
  uint32_t barrier_tick = 0;  // Of the block's last Barrier, or start.
  uint32_t now = 0;
};

struct Touch {
  static constexpr int16_t kSeveralWarps = INT16_MIN;

  uint32_t tick = 0;
  int16_t who = 0;  // A thread; -1 - w: several lanes of warp w; kSeveralWarps.

  static int16_t LanesOf(int16_t warp) { return static_cast<int16_t>(-1 - warp); }
  int Warp() const { return who >= 0 ? who >> 5 : -1 - who; }

  bool OrderedBefore(const Toucher& by) const {
    if (tick < by.barrier_tick || who == by.thread) return true;
    return Warp() == by.warp && tick < by.warp_tick;
  }
  // Alone: what came before does not matter any more.
  void Set(const Toucher& by) {
    who = by.thread >= 0 ? by.thread : LanesOf(by.warp);
    tick = by.now;
  }
  // Besides those who touched it since the last Barrier.
  void Add(const Toucher& by) {
    const bool old = tick < by.barrier_tick || who == by.thread;
    const bool same_warp = Warp() == by.warp;
    if (old || (same_warp && tick < by.warp_tick)) return Set(by);
    who = same_warp ? LanesOf(by.warp) : kSeveralWarps;
    tick = by.now;
  }
};

}  // namespace renga::test
