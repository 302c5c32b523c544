// Where "now" comes from: the system clock in the server, a hand-moved one in tests.

#pragma once

#include "renga/types.h"

namespace renga {

// Thread safety: `Now` may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

}  // namespace renga
