// ManualClock: a Clock that stands still until a test moves it.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <atomic>

#include "renga/clock.h"

namespace renga {

class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(nanoseconds_.load())); }
  void Advance(Duration by) { nanoseconds_ += by.count(); }

 private:
  // Not zero: a moment before "now" can be named.
  std::atomic<int64_t> nanoseconds_{Duration(std::chrono::seconds(1000)).count()};
};

}  // namespace renga
