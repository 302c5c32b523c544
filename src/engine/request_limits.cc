#include "engine/request_limits.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "renga/backend.h"

namespace renga {
namespace {

Status CheckTokens(const char* field, const std::vector<TokenId>& tokens, int64_t vocab) {
  for (const TokenId token : tokens) {
    if (token >= 0 && token < vocab) continue;
    return InvalidArgument(field, "token " + std::to_string(token) +
                                      " is outside the vocabulary of " +
                                      std::to_string(vocab));
  }
  return OkStatus();
}

Status CheckPrompt(const EngineRequest& request, const RequestLimits& limits) {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) return InvalidArgument("prompt", "has no tokens");
  if (prompt + 1 > limits.context) {
    return InvalidArgument("prompt", "has " + std::to_string(prompt) +
                                         " tokens; the context holds " +
                                         std::to_string(limits.context) +
                                         " with at least one of the answer");
  }
  if (PagesFor(prompt) > limits.pages) {
    return InvalidArgument("prompt", "needs " + std::to_string(PagesFor(prompt)) +
                                         " KV pages; the pool has " +
                                         std::to_string(limits.pages));
  }
  return CheckTokens("prompt", request.prompt, limits.vocab);
}

Status CheckCounts(const EngineRequest& request, const RequestLimits& limits) {
  if (request.max_tokens < 0) return InvalidArgument("max_tokens", "is negative");
  if (request.min_tokens < 0) return InvalidArgument("min_tokens", "is negative");
  if (request.max_tokens_given && request.min_tokens > request.max_tokens) {
    return InvalidArgument("min_tokens", "is " + std::to_string(request.min_tokens) +
                                             ", more than max_tokens, " +
                                             std::to_string(request.max_tokens));
  }
  if (request.n < 1 || request.n > limits.max_sequences) {
    return InvalidArgument(
        "n", "is " + std::to_string(request.n) + "; the server runs 1 to " +
                 std::to_string(limits.max_sequences) + " answers at a time");
  }
  const int64_t most = std::min<int64_t>(kMaxTopLogprobs, limits.vocab);
  if (request.logprobs > most) {
    return InvalidArgument("logprobs", "is above " + std::to_string(most));
  }
  if (request.prompt_logprobs > most) {
    return InvalidArgument("prompt_logprobs", "is above " + std::to_string(most));
  }
  return OkStatus();
}

// Some token must be left to draw before min_tokens.
Status CheckEnds(const EngineRequest& request, int64_t vocab) {
  RENGA_RETURN_IF_ERROR(CheckTokens("end_tokens", request.end_tokens, vocab));
  RENGA_RETURN_IF_ERROR(CheckTokens("stop_token_ids", request.stop_tokens, vocab));
  if (request.min_tokens == 0) return OkStatus();
  if (static_cast<int64_t>(request.end_tokens.size() + request.stop_tokens.size()) <
      vocab) {
    return OkStatus();
  }
  std::vector<TokenId> ends = request.end_tokens;
  ends.insert(ends.end(), request.stop_tokens.begin(), request.stop_tokens.end());
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  if (static_cast<int64_t>(ends.size()) < vocab) return OkStatus();
  return InvalidArgument("min_tokens", "every token of the vocabulary ends the answer");
}

Status CheckSampling(const SamplingParams& params, int64_t vocab) {
  const auto finite = [](const char* field, float value) {
    return std::isfinite(value) ? OkStatus() : InvalidArgument(field, "is not finite");
  };
  RENGA_RETURN_IF_ERROR(finite("temperature", params.temperature));
  RENGA_RETURN_IF_ERROR(finite("typical_p", params.typical_p));
  RENGA_RETURN_IF_ERROR(finite("top_p", params.top_p));
  RENGA_RETURN_IF_ERROR(finite("min_p", params.min_p));
  RENGA_RETURN_IF_ERROR(finite("repetition_penalty", params.repetition_penalty));
  RENGA_RETURN_IF_ERROR(finite("presence_penalty", params.presence_penalty));
  RENGA_RETURN_IF_ERROR(finite("frequency_penalty", params.frequency_penalty));
  if (params.repetition_penalty <= 0.0f) {
    return InvalidArgument("repetition_penalty", "must be above 0");
  }
  std::vector<TokenId> biased;
  for (const LogitBias& bias : params.logit_bias) {
    RENGA_RETURN_IF_ERROR(finite("logit_bias", bias.bias));
    biased.push_back(bias.token);
  }
  RENGA_RETURN_IF_ERROR(CheckTokens("logit_bias", biased, vocab));
  std::sort(biased.begin(), biased.end());
  const auto twice = std::adjacent_find(biased.begin(), biased.end());
  if (twice == biased.end()) return OkStatus();
  return InvalidArgument("logit_bias",
                         "has token " + std::to_string(*twice) + " more than once");
}

}  // namespace

Status CheckEngineRequest(const EngineRequest& request, const RequestLimits& limits) {
  RENGA_RETURN_IF_ERROR(CheckPrompt(request, limits));
  RENGA_RETURN_IF_ERROR(CheckCounts(request, limits));
  RENGA_RETURN_IF_ERROR(CheckEnds(request, limits.vocab));
  return CheckSampling(request.sampling, limits.vocab);
}

}  // namespace renga
