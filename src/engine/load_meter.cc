#include "engine/load_meter.h"

#include <algorithm>

namespace renga {
namespace {

constexpr int64_t kWeight = 16;  // A new value counts 1 / kWeight.

}  // namespace

void LoadMeter::NoteTaken(int64_t prompt_tokens, int64_t cached_tokens) {
  const double keep = 1.0 - 1.0 / kWeight;
  prompt_tokens_ = keep * prompt_tokens_ + static_cast<double>(prompt_tokens);
  cached_tokens_ = keep * cached_tokens_ + static_cast<double>(cached_tokens);
}

double LoadMeter::cached_share() const {
  return prompt_tokens_ > 0.0 ? cached_tokens_ / prompt_tokens_ : 0.0;
}

void LoadMeter::NoteEnded(Duration residence) {
  residence_ = residence_ == Duration{} ? residence
                                        : residence_ + (residence - residence_) / kWeight;
}

void LoadMeter::NoteStep(TimePoint start, TimePoint end) {
  // What lies further back than all slots is not seen any more.
  start = std::max(start, end - kSlots * kSlot);
  while (start < end) {
    const int64_t number = start.time_since_epoch() / kSlot;
    const TimePoint border = TimePoint{} + (number + 1) * kSlot;
    Slot& slot = slots_[static_cast<size_t>(number % kSlots)];
    if (slot.number != number) slot = {.number = number, .busy = Duration{}};
    slot.busy += std::min(end, border) - start;
    start = border;
  }
}

double LoadMeter::busy_share(TimePoint now) const {
  const int64_t current = now.time_since_epoch() / kSlot;
  const TimePoint from = std::max(since_, TimePoint{} + (current - kSlots + 1) * kSlot);
  Duration busy{};
  for (const Slot& slot : slots_) {
    if (slot.number > current - kSlots) busy += slot.busy;
  }
  if (now <= from) return 0.0;
  const double share =
      std::chrono::duration<double>(busy) / std::chrono::duration<double>(now - from);
  return std::min(1.0, share);
}

}  // namespace renga
