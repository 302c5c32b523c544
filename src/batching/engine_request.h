// EngineRequest: a validated, tokenised request on its way from service to engine.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "metrics/flight_recorder.h"
#include "renga/request.h"
#include "renga/token_sink.h"

namespace renga {

struct EngineRequest {
  RequestId id{};
  std::vector<TokenId> prompt{};  // At least one; all inside the vocabulary.
  SamplingParams sampling;
  uint64_t seed = 0;  // sampling.seed, or a fresh one.
  // prompt + max_tokens fits the context. 0: only the prompt is computed.
  int64_t max_tokens = 0;
  // False: the context's end, not the client, sets max_tokens (StopCause::kContext).
  bool max_tokens_given = false;
  std::vector<TokenId> end_tokens;   // End the answer with StopCause::kEndToken.
  std::vector<TokenId> stop_tokens;  // End the answer with StopCause::kStopToken.
  int64_t min_tokens = 0;            // Before these, neither of the two can be drawn.
  int32_t n = 1;                     // Choices.
  int32_t logprobs = -1;             // Alternatives per token; -1: no log-probabilities.
  int32_t prompt_logprobs = -1;
  bool echo = false;  // StartInfo::prompt is wanted.
  Priority priority = Priority::kNormal;
  std::string tenant{};
  std::string cache_salt{};  // The whole namespace of the prefix cache, tenant included.
  bool use_prefix_cache = true;
  Duration first_token_limit{};  // 0: none but the deadline.
  // Tokens to compute when the service found that deadline and limit can be met. A
  // refusal is at once there, but takes up to a step here: so the engine, which knows
  // what is cached, looks again only where there is more to compute by over a page. -1:
  // always.
  int64_t assumed_uncached = -1;
  // False: one of the server's own. It is never refused by prediction, and leaves no
  // trace in the metrics of requests and their tokens.
  bool counted = true;
  FlightTicket ticket{};  // Its timeline in the flight recorder.
  TimePoint arrival{};
  TimePoint queued{};  // When it entered the wait queue.
  std::optional<TimePoint> deadline;
  std::unique_ptr<TokenSink> sink;  // Gets exactly one OnDone.
};

}  // namespace renga
