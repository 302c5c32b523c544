// What one rendering may cost. Every step, byte and loop round is charged before it is
// spent, so that no template and no input can hold a thread or fill memory.
//
// Thread rule: one rendering, one thread.

#pragma once

#include <cstdint>

#include "renga/status.h"

namespace renga::jinja {

struct RenderLimits {
  int64_t max_steps = 8'000'000;           // Nodes evaluated, and 16 bytes walked each.
  int64_t max_bytes = int64_t{256} << 20;  // Of all strings made, the output included.
  int64_t max_rounds = 1'000'000;          // Of all loops together.
  int32_t max_depth = 200;                 // Nested evaluation, macro calls included.
};

class Budget {
 public:
  explicit Budget(const RenderLimits& limits) : left_(limits) {}

  Status Step(int64_t steps = 1) {
    if (steps > left_.max_steps) return Exceeded("too much work");
    left_.max_steps -= steps;
    return OkStatus();
  }
  // A walk over `bytes` that makes nothing.
  Status Walk(int64_t bytes) { return Step(1 + bytes / 16); }
  // A walk that makes a string of `bytes`.
  Status Make(int64_t bytes) {
    if (bytes > left_.max_bytes) return Exceeded("too much text");
    left_.max_bytes -= bytes;
    return OkStatus();
  }
  Status Round() {
    if (left_.max_rounds == 0) return Exceeded("too many loop rounds");
    --left_.max_rounds;
    return OkStatus();
  }

  static Status Exceeded(const char* what) {
    return Status(StatusCode::kResourceExhausted, what);
  }

 private:
  RenderLimits left_;
};

}  // namespace renga::jinja
