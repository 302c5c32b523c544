#include "engine/stop_rules.h"

#include <algorithm>
#include <vector>

namespace renga {
namespace {

bool Contains(const std::vector<TokenId>& tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

StopDecision StopAtToken(const EngineRequest& request, TokenId token) {
  if (Contains(request.end_tokens, token)) {
    return {.reason = FinishReason::kStop, .cause = StopCause::kEndToken};
  }
  if (Contains(request.stop_tokens, token)) {
    return {.reason = FinishReason::kStop, .cause = StopCause::kStopToken};
  }
  return {};
}

StopDecision StopAtLength(const EngineRequest& request, int64_t generated) {
  if (generated < request.max_tokens) return {};
  return {
      .reason = FinishReason::kLength,
      .cause = request.max_tokens_given ? StopCause::kMaxTokens : StopCause::kContext};
}

}  // namespace renga
