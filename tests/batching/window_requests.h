// Short words for the tests of BatchWindow: times, requests and engine states.

#pragma once

#include <string>

#include "batching/batch_window.h"
#include "renga/backend.h"

namespace renga::test {

inline TimePoint At(int64_t ms) { return TimePoint{} + std::chrono::milliseconds(ms); }

inline WindowRequest Request(RequestId id, int64_t tokens, TimePoint arrival = At(0)) {
  return {
      .id = id, .uncached_tokens = tokens, .pages = PagesFor(tokens), .arrival = arrival};
}
inline WindowRequest Of(const std::string& tenant, WindowRequest request) {
  request.tenant = tenant;
  return request;
}
inline WindowRequest With(Priority priority, WindowRequest request) {
  request.priority = priority;
  return request;
}
inline WindowRequest Choices(int32_t n, WindowRequest request) {
  request.sequences = n;
  return request;
}

inline EngineState Idle(int64_t free_pages = 1000) {
  return {.busy = false, .free_pages = free_pages, .evictable_pages = 0, .running = 0};
}
inline EngineState Busy(int64_t free_pages = 1000, int32_t running = 1) {
  return {
      .busy = true, .free_pages = free_pages, .evictable_pages = 0, .running = running};
}

}  // namespace renga::test
