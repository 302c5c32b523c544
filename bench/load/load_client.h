// LoadClient: chat requests over gRPC, closed loop or open loop, and what became of them.
//
// Closed loop: each user sends its next request when the last one has ended (and it has
// thought). Open loop: requests start at random times of a Poisson process, whatever the
// server does, as strangers' requests do.
//
// Every message is a fresh text of 50 to 100 characters, so that nothing but the chat
// template's own beginning can come from the prefix cache.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace renga {

struct LoadOptions {
  std::string address{};
  int64_t max_tokens = 16;
  int64_t deadline_ms = 0;  // Of each request; 0: none.
  double seconds = 10.0;    // Requests are started for so long; then all are awaited.
  // Closed loop: `users` > 0, thinking `think_min` to `think_max` seconds.
  int users = 0;
  double think_min = 0.0;
  double think_max = 0.0;
  double rate = 0.0;  // Open loop: requests per second.
  uint64_t seed = 1;
};

struct LoadResult {
  int64_t ok = 0;
  int64_t refused = 0;                 // RESOURCE_EXHAUSTED
  int64_t late = 0;                    // DEADLINE_EXCEEDED
  int64_t failed = 0;                  // Anything else.
  double seconds = 0.0;                // First start to last end.
  std::vector<double> response_ms;     // Of the good ones, sorted.
  std::vector<double> first_token_ms;  // The same.
  std::vector<double> max_gap_ms;      // The same; between two messages of the stream.
  std::vector<double> refusal_ms;      // Sorted.

  double rate() const { return seconds > 0 ? static_cast<double>(ok) / seconds : 0.0; }
};

// The value at `share` of sorted values; 0 if there are none.
double Quantile(const std::vector<double>& sorted, double share);

LoadResult RunLoad(const LoadOptions& options);

}  // namespace renga
