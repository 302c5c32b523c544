// The real Clock: std::chrono::steady_clock.

#pragma once

#include "renga/clock.h"

namespace renga {

class SystemClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace renga
