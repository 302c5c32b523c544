// ReplayBackend: the fields of a SampleSpec that act on a scripted answer.

#include "tests/models/replay_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace renga::test {
namespace {

class ReplaySampleTest : public ::testing::Test {
 protected:
  ReplaySampleTest() {
    EXPECT_TRUE(backend_.CreateKvPool({}, 1).ok());
    EXPECT_TRUE(backend_
                    .BeginStep({.tokens = {kTokens, 2},
                                .sequences = {&rows_, 1},
                                .logit_rows = {kRows, 2}},
                               {})
                    .ok());
  }

  SampleResult Draw(const SampleSpec& spec) {
    SampleResult result;
    const Status status = backend_.Sample({&spec, 1}, {&result, 1});
    EXPECT_TRUE(status.ok()) << status.ToString();
    return result;
  }

  static constexpr TokenId kTokens[] = {5, 6};
  static constexpr int32_t kRows[] = {0, 1};
  const std::vector<PageId> pages_ = {0};
  const SequenceRows rows_{
      .first_row = 0, .rows = 2, .first_position = 0, .pages = pages_};
  ReplayBackend backend_{ReplayBackend::Always({9}), {.vocab = 300}};
};

TEST_F(ReplaySampleTest, ABannedTokenGivesWayToTheNextId) {
  const std::vector<TokenId> banned = {9, 10};
  const std::vector<LogitBias> bias = {{11, -100.0f}, {12, -1.0f}};
  EXPECT_EQ(Draw({.logit_row = 1, .logit_bias = bias, .banned = banned}).token, 12);
}

TEST_F(ReplaySampleTest, ABiasOf100ForcesATokenThatIsNotBanned) {
  const std::vector<LogitBias> bias = {{40, 100.0f}};
  const std::vector<TokenId> banned = {40};
  EXPECT_EQ(Draw({.logit_row = 1, .logit_bias = bias}).token, 40);
  EXPECT_EQ(Draw({.logit_row = 1, .logit_bias = bias, .banned = banned}).token, 9);
}

TEST_F(ReplaySampleTest, AGivenTokenIsScoredByTheLogits) {
  const SampleResult result = Draw({.logit_row = 0, .given = 6, .logprobs = 3});
  EXPECT_EQ(result.token, 6);
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[0].token, 9);
  EXPECT_EQ(result.top[1].token, 0);
  EXPECT_NEAR(result.top[0].logprob - result.logprob, 10.0f, 1e-4f);
  const double sum = std::exp(static_cast<double>(result.top[0].logprob)) +
                     299.0 * std::exp(static_cast<double>(result.logprob));
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

}  // namespace
}  // namespace renga::test
