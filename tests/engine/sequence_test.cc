// Sequence: pages follow positions, and a preempted one keeps its tokens.

#include "engine/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace renga {
namespace {

EngineRequest Request(size_t prompt, int64_t max_tokens) {
  EngineRequest request;
  request.id = RequestId{5};
  request.prompt.assign(prompt, 7);
  request.max_tokens = max_tokens;
  return request;
}

TEST(SequenceTest, TakesAPageForEveryStartedSixtyFourPositions) {
  KvPool pool(4);
  Sequence sequence(Request(130, 10), 0);
  EXPECT_EQ(sequence.promised_pages(), 3);
  EXPECT_TRUE(sequence.GrowTo(64, pool));
  EXPECT_EQ(sequence.pages(), 1);
  EXPECT_TRUE(sequence.GrowTo(65, pool));
  EXPECT_EQ(sequence.pages(), 2);
  EXPECT_EQ(sequence.promised_pages(), 1);
  EXPECT_TRUE(sequence.GrowTo(1, pool)) << "never shrinks";
  EXPECT_EQ(sequence.pages(), 2);
  EXPECT_EQ(sequence.page_table().size(), 2u);
  EXPECT_FALSE(sequence.GrowTo(64 * 5, pool)) << "more than there are";
}

TEST(SequenceTest, APreemptedOneKeepsItsTokensAndForgetsWhatWasComputed) {
  KvPool pool(4);
  Sequence sequence(Request(64, 10), 0);
  ASSERT_TRUE(sequence.GrowTo(64, pool));
  sequence.Advance(64);
  sequence.Append(9);
  EXPECT_EQ(sequence.uncomputed(), 1);
  sequence.DropPages();
  EXPECT_EQ(pool.free(), 4);
  EXPECT_EQ(sequence.uncomputed(), 65);
  EXPECT_EQ(sequence.generated(), 1);
  EXPECT_EQ(sequence.tokens().back(), 9);
  EXPECT_TRUE(sequence.View().answering);
}

TEST(SequenceTest, GivesItsPagesBackWhenItDies) {
  KvPool pool(2);
  {
    Sequence sequence(Request(10, 1), 0);
    ASSERT_TRUE(sequence.GrowTo(100, pool));
  }
  EXPECT_EQ(pool.free(), 2);
}

TEST(SequenceTest, NothingMovesWhenARunningOneGrows) {
  KvPool pool(8);
  Sequence sequence(Request(10, 400), 0);
  sequence.Reserve();
  const TokenId* tokens = sequence.tokens().data();
  ASSERT_TRUE(sequence.GrowTo(1, pool));
  const PageId* pages = sequence.page_table().data();
  for (int i = 0; i < 400; ++i) sequence.Append(1);
  ASSERT_TRUE(sequence.GrowTo(410, pool));
  EXPECT_EQ(sequence.tokens().data(), tokens);
  EXPECT_EQ(sequence.page_table().data(), pages);
}

}  // namespace
}  // namespace renga
