// SampleSpec: what it does to a row before the draw, and what is refused.

#include "backend/sample_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace renga {
namespace {

using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

std::vector<float> Edited(const SampleSpec& spec, std::vector<float> logits) {
  EditLogits(spec, logits);
  return logits;
}

TEST(EditLogits, ABiasIsAdded) {
  const std::vector<LogitBias> bias = {{1, 2.5f}, {3, -100.0f}};
  EXPECT_THAT(Edited({.logit_bias = bias}, {1, 2, 3, 4}), ElementsAre(1, 4.5f, 3, -96));
}

TEST(EditLogits, TheRepetitionPenaltyPushesEveryTokenOfTheHistoryDown) {
  const std::vector<TokenCount> history = {{0, 0}, {1, 3}, {2, 1}};
  EXPECT_THAT(Edited({.repetition_penalty = 2.0f, .history = history}, {4, -4, 0, 4}),
              ElementsAre(2, -8, 0, 4));
}

TEST(EditLogits, PresenceAndFrequencySeeTheAnswerAlone) {
  const std::vector<TokenCount> history = {{0, 0}, {1, 1}, {2, 3}};
  EXPECT_THAT(Edited({.presence_penalty = 0.5f, .history = history}, {1, 1, 1, 1}),
              ElementsAre(1, 0.5f, 0.5f, 1));
  EXPECT_THAT(Edited({.frequency_penalty = 0.25f, .history = history}, {1, 1, 1, 1}),
              ElementsAre(1, 0.75f, 0.25f, 1));
  EXPECT_THAT(
      Edited({.presence_penalty = -1, .frequency_penalty = -2, .history = history},
             {1, 1, 1, 1}),
      ElementsAre(1, 4, 8, 1));
}

TEST(EditLogits, TheOrderIsBiasRepetitionFrequencyPresenceBan) {
  const std::vector<LogitBias> bias = {{0, 3.0f}, {1, 100.0f}};
  const std::vector<TokenCount> history = {{0, 2}, {1, 2}};
  const std::vector<TokenId> banned = {1};
  const SampleSpec spec{.repetition_penalty = 2.0f,
                        .presence_penalty = 0.5f,
                        .frequency_penalty = 0.25f,
                        .logit_bias = bias,
                        .history = history,
                        .banned = banned};
  EXPECT_THAT(Edited(spec, {-1, 5, 7}),
              ElementsAre((-1 + 3) / 2.0f - 0.5f - 0.5f, -kInf, 7));
}

TEST(EditLogits, MinusInfinityStaysAndWhatOverflowsIsTheLargestFloat) {
  const std::vector<LogitBias> bias = {{0, 100.0f}, {1, 100.0f}, {2, -100.0f}};
  const std::vector<TokenCount> history = {{0, 1}, {1, 1}, {3, 1}};
  const SampleSpec spec{.repetition_penalty = 1e-30f,
                        .presence_penalty = -2,
                        .logit_bias = bias,
                        .history = history};
  EXPECT_THAT(Edited(spec, {-kInf, kMax, -kMax, 1e20f}),
              ElementsAre(-kInf, kMax, -kMax, kMax));
}

TEST(EditLogits, ARowIsTakenAsItIsWhereNothingWouldChangeIt) {
  const std::vector<TokenCount> history = {{1, 1}};
  const std::vector<TokenId> banned = {1};
  const std::vector<LogitBias> bias = {{1, 1.0f}};
  EXPECT_FALSE(EditsLogits({}));
  EXPECT_FALSE(EditsLogits({.history = history}));
  EXPECT_FALSE(EditsLogits({.repetition_penalty = 2.0f}));
  EXPECT_TRUE(EditsLogits({.repetition_penalty = 2.0f, .history = history}));
  EXPECT_TRUE(EditsLogits({.presence_penalty = 1.0f, .history = history}));
  EXPECT_TRUE(EditsLogits({.frequency_penalty = 1.0f, .history = history}));
  EXPECT_TRUE(EditsLogits({.logit_bias = bias}));
  EXPECT_TRUE(EditsLogits({.banned = banned}));
}

TEST(CheckSampleSpec, NamesTheFieldThatReachesOutside) {
  const auto field = [](const SampleSpec& spec) {
    return CheckSampleSpec(spec, 2, 100).field();
  };
  EXPECT_TRUE(CheckSampleSpec({.logit_row = 1, .given = 99}, 2, 100).ok());
  EXPECT_EQ(field({.logit_row = 2}), "logit_row");
  EXPECT_EQ(field({.logit_row = -1}), "logit_row");
  EXPECT_EQ(field({.given = 100}), "given");
  EXPECT_EQ(field({.logprobs = kMaxTopLogprobs + 1}), "logprobs");
  for (const TokenId token : {-1, 100, std::numeric_limits<TokenId>::max()}) {
    const std::vector<LogitBias> bias = {{99, 1.0f}, {token, 1.0f}};
    const std::vector<TokenCount> history = {{99, 1}, {token, 1}};
    const std::vector<TokenId> banned = {99, token};
    EXPECT_EQ(field({.logit_bias = bias}), "logit_bias");
    EXPECT_EQ(field({.history = history}), "history");
    EXPECT_EQ(field({.banned = banned}), "banned");
  }
}

}  // namespace
}  // namespace renga
