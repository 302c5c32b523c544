// TokenHistory: counts every token of prompt and answer once, whatever its id.

#include "engine/token_history.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace renga {
namespace {

TEST(TokenHistoryTest, CountsLikeAMapDoesAndListsEachTokenOnce) {
  std::mt19937 rng(3);
  for (const int32_t vocab : {1, 2, 7, 1000, 1 << 30}) {
    constexpr int kTokens = 600;
    TokenHistory history;
    history.Reserve(kTokens);
    std::map<TokenId, int32_t> expected;
    for (int i = 0; i < kTokens; ++i) {
      const auto token = static_cast<TokenId>(rng() % static_cast<uint32_t>(vocab));
      if (i < 250) {
        history.AddPrompt(token);
        expected.try_emplace(token, 0);
      } else {
        history.AddAnswer(token);
        ++expected[token];
      }
    }
    ASSERT_EQ(history.counts().size(), expected.size());
    for (const TokenCount& count : history.counts()) {
      EXPECT_EQ(count.in_answer, expected.at(count.token));
    }
  }
}

TEST(TokenHistoryTest, TheListDoesNotMoveWhileItGrows) {
  TokenHistory history;
  history.Reserve(100);
  history.AddPrompt(5);
  const TokenCount* at = history.counts().data();
  for (TokenId token = 0; token < 99; ++token) history.AddAnswer(1000 * token);
  EXPECT_EQ(history.counts().data(), at);
  EXPECT_EQ(history.counts().size(), 100u);
}

}  // namespace
}  // namespace renga
