// The small types that cross module borders: ids, token ids, time.
//
// Thread safety: plain values.

#pragma once

#include <chrono>
#include <cstdint>

namespace renga {

// Index into the model's vocabulary. Untrusted ids are range-checked before use.
using TokenId = int32_t;

// Names one request inside one server process. Never reused, never 0.
enum class RequestId : uint64_t {};

// All deadlines and durations are on the monotonic clock.
using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

}  // namespace renga
