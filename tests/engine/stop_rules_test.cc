// StopRules: which token, or how many, end an answer.

#include "engine/stop_rules.h"

#include <gtest/gtest.h>

namespace renga {
namespace {

EngineRequest Request(int64_t max_tokens, bool given) {
  EngineRequest request;
  request.max_tokens = max_tokens;
  request.max_tokens_given = given;
  request.end_tokens = {2, 3};
  request.stop_tokens = {3, 9};
  return request;
}

TEST(StopRulesTest, EndTokensComeBeforeStopTokens) {
  const EngineRequest request = Request(5, true);
  EXPECT_EQ(StopAtToken(request, 2).cause, StopCause::kEndToken);
  EXPECT_EQ(StopAtToken(request, 3).cause, StopCause::kEndToken);
  EXPECT_EQ(StopAtToken(request, 9).cause, StopCause::kStopToken);
  EXPECT_EQ(StopAtToken(request, 9).reason, FinishReason::kStop);
  EXPECT_FALSE(StopAtToken(request, 4).stops());
}

TEST(StopRulesTest, TheLastAllowedTokenEndsTheAnswerAndSaysWhoSetTheLimit) {
  EXPECT_FALSE(StopAtLength(Request(5, true), 4).stops());
  EXPECT_EQ(StopAtLength(Request(5, true), 5).reason, FinishReason::kLength);
  EXPECT_EQ(StopAtLength(Request(5, true), 5).cause, StopCause::kMaxTokens);
  EXPECT_EQ(StopAtLength(Request(5, false), 5).cause, StopCause::kContext);
}

}  // namespace
}  // namespace renga
