// PromptScores: P - 1 scores for P tokens, each row counted once.

#include "engine/prompt_scores.h"

#include <gtest/gtest.h>

namespace renga {
namespace {

TEST(PromptScoresTest, WithoutBeingAskedForTheyAreComplete) {
  const PromptScores scores;
  EXPECT_TRUE(scores.complete());
  EXPECT_TRUE(scores.all().empty());
}

TEST(PromptScoresTest, APromptOfOneTokenHasNone) {
  PromptScores scores;
  scores.Reserve(1, 5);
  EXPECT_TRUE(scores.complete());
}

TEST(PromptScoresTest, KeepsEachRowOnceAndCopiesItsAlternatives) {
  PromptScores scores;
  scores.Reserve(4, 2);
  std::vector<TopLogprob> top = {{.token = 8, .logprob = -0.5f},
                                 {.token = 9, .logprob = -1.5f}};
  for (int64_t row = 0; row < 2; ++row) {
    EXPECT_FALSE(scores.complete());
    scores.Add(row, {.token = static_cast<TokenId>(row),
                     .logprob = -1.0f - static_cast<float>(row),
                     .top = top});
  }
  EXPECT_EQ(scores.known(), 2);
  scores.Add(0, {.token = 77});  // Computed again after a preemption.
  EXPECT_EQ(scores.known(), 2);
  top[0].token = 0;  // The device's buffer is used again.
  scores.Add(2, {.token = 2, .logprob = -3.0f, .top = top});
  ASSERT_TRUE(scores.complete());
  ASSERT_EQ(scores.all().size(), 3u);
  EXPECT_EQ(scores.all()[0].token, 0);
  EXPECT_EQ(scores.all()[1].logprob, -2.0f);
  EXPECT_EQ(scores.all()[0].top[0].token, 8);
  EXPECT_EQ(scores.all()[2].top[0].token, 0);
}

}  // namespace
}  // namespace renga
