// LoadMeter: what the engine's load was like lately, for predictions and gauges.
//
// Shares and means are exponentially weighted over requests (about the last 16 count);
// the busy share is taken over the last five seconds, in slots of one second.
//
// Pure: the caller brings the time. Thread safety: none; the engine thread's.

#pragma once

#include <array>
#include <cstdint>

#include "renga/types.h"

namespace renga {

class LoadMeter {
 public:
  explicit LoadMeter(TimePoint now) : since_(now) {}

  // A request was taken, with so many tokens of its prompt in the prefix cache.
  void NoteTaken(int64_t prompt_tokens, int64_t cached_tokens);
  // A sequence has held its place for so long.
  void NoteEnded(Duration residence);
  // REQUIRES: steps come in order.
  void NoteStep(TimePoint start, TimePoint end);

  double cached_share() const;
  Duration residence() const { return residence_; }
  // Of the time up to `now`, which is not before the last step's end.
  double busy_share(TimePoint now) const;

 private:
  static constexpr int64_t kSlots = 5;
  static constexpr Duration kSlot = std::chrono::seconds(1);

  struct Slot {
    int64_t number = -1;  // Since the clock's start.
    Duration busy{};
  };

  const TimePoint since_;
  double prompt_tokens_ = 0.0;
  double cached_tokens_ = 0.0;
  Duration residence_{};
  std::array<Slot, kSlots> slots_{};  // Slot number n at n % kSlots.
};

}  // namespace renga
