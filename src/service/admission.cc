#include "service/admission.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace renga {
namespace {

std::string Milliseconds(Duration duration) {
  return std::to_string(std::chrono::ceil<std::chrono::milliseconds>(duration).count()) +
         " ms";
}

}  // namespace

Status CheckFirstToken(const FirstTokenBounds& bounds, TimePoint now,
                       Duration predicted) {
  if (predicted <= Duration::zero()) return OkStatus();
  // Time left by each bound; the shorter one is named.
  std::optional<Duration> left;
  std::string what;
  if (bounds.deadline) {
    left = *bounds.deadline - now;
    what = "; the deadline is in " + Milliseconds(std::max(*left, Duration::zero()));
  }
  if (bounds.limit > Duration::zero()) {
    const Duration by_limit = bounds.limit - (now - bounds.arrival);
    if (!left || by_limit < *left) {
      left = by_limit;
      what = "; the server's limit is " + Milliseconds(bounds.limit) + " from arrival";
    }
  }
  if (!left || predicted <= *left) return OkStatus();
  // By then what is ahead has become so much shorter.
  return ResourceExhausted("the first token is predicted in " + Milliseconds(predicted) +
                           what)
      .WithRetryAfter(RetryDelay(predicted - *left));
}

Duration RetryDelay(Duration delay) {
  return std::clamp<Duration>(delay, std::chrono::milliseconds(100),
                              std::chrono::seconds(10));
}

}  // namespace renga
