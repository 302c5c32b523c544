// EngineRequest: a validated, tokenised request on its way from service to engine.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "renga/request.h"
#include "renga/token_sink.h"

namespace renga {

struct EngineRequest {
  RequestId id{};
  std::vector<TokenId> prompt;  // At least one; all inside the vocabulary.
  SamplingParams sampling;
  uint64_t seed = 0;       // sampling.seed, or a fresh one.
  int64_t max_tokens = 0;  // At least 1; prompt + max_tokens fits the context.
  // False: the context's end, not the client, sets max_tokens (StopCause::kContext).
  bool max_tokens_given = false;
  std::vector<TokenId> end_tokens;   // End the answer with StopCause::kEndToken.
  std::vector<TokenId> stop_tokens;  // End the answer with StopCause::kStopToken.
  TimePoint arrival{};
  std::optional<TimePoint> deadline;
  std::unique_ptr<TokenSink> sink;  // Gets exactly one OnDone.
};

}  // namespace renga
