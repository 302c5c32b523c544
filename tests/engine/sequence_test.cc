// Sequence: pages follow positions, and a preempted one keeps its tokens.

#include "engine/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/request_group.h"

namespace renga {
namespace {

using testing::ElementsAre;

EngineRequest Request(size_t prompt, int64_t max_tokens) {
  EngineRequest request;
  request.id = RequestId{5};
  request.prompt.assign(prompt, 7);
  request.max_tokens = max_tokens;
  return request;
}

TEST(SequenceTest, PagesAreTakenFromThePromise) {
  KvPool pool(4);
  RequestGroup group(Request(130, 10), 1, {});
  Sequence& sequence = group.first();
  EXPECT_EQ(sequence.promised_pages(), 3);
  sequence.AddPage(pool.Allocate(), 0);
  sequence.AddPage(pool.Allocate(), 0);
  EXPECT_EQ(sequence.promised_pages(), 1);
  EXPECT_EQ(sequence.View().pages, 2);
  EXPECT_THAT(sequence.page_table(),
              ElementsAre(sequence.page_refs()[0].id(), sequence.page_refs()[1].id()));
}

TEST(SequenceTest, APreemptedOneKeepsItsTokensAndForgetsWhatWasComputed) {
  KvPool pool(4);
  RequestGroup group(Request(64, 10), 1, {});
  Sequence& sequence = group.first();
  sequence.AddPage(pool.Allocate(), 0);
  sequence.Advance(64);
  sequence.Append(9);
  EXPECT_EQ(sequence.uncomputed(), 1);
  EXPECT_EQ(sequence.worked(), 64);
  sequence.DropPages();
  EXPECT_EQ(pool.free(), 4);
  EXPECT_EQ(sequence.uncomputed(), 65);
  EXPECT_EQ(sequence.worked(), 0);
  EXPECT_EQ(sequence.generated(), 1);
  EXPECT_EQ(sequence.tokens().back(), 9);
  EXPECT_TRUE(sequence.View().answering);
}

TEST(SequenceTest, APageThatIsFilledAlreadyIsComputedButNotItsOwnWork) {
  KvPool pool(4);
  RequestGroup group(Request(100, 10), 1, {});
  Sequence& sequence = group.first();
  sequence.AddPage(pool.Allocate(), 64);
  sequence.AddPage(pool.Allocate(), 20);
  EXPECT_EQ(sequence.computed(), 84);
  EXPECT_EQ(sequence.uncomputed(), 16);
  EXPECT_EQ(sequence.worked(), 0);
}

TEST(SequenceTest, GivesItsPagesBackWhenItDies) {
  KvPool pool(2);
  {
    RequestGroup group(Request(10, 1), 1, {});
    group.first().AddPage(pool.Allocate(), 0);
  }
  EXPECT_EQ(pool.free(), 2);
}

TEST(SequenceTest, NothingMovesWhenARunningOneGrows) {
  KvPool pool(8);
  RequestGroup group(Request(10, 400), 1, {});
  group.Reserve();
  Sequence& sequence = group.first();
  const TokenId* tokens = sequence.tokens().data();
  sequence.AddPage(pool.Allocate(), 0);
  const PageId* pages = sequence.page_table().data();
  for (int i = 0; i < 400; ++i) sequence.Append(1);
  while (sequence.promised_pages() > 0) sequence.AddPage(pool.Allocate(), 0);
  EXPECT_EQ(sequence.pages(), 7);
  EXPECT_EQ(sequence.tokens().data(), tokens);
  EXPECT_EQ(sequence.page_table().data(), pages);
}

TEST(SequenceTest, TheLastKnownTokenIsAlwaysComputedAndSoIsEveryRowWithAWantedScore) {
  EngineRequest scored = Request(10, 4);
  scored.prompt_logprobs = 0;
  RequestGroup plain(Request(10, 4), 1, {}), scores(std::move(scored), 2, {});
  EXPECT_EQ(plain.first().reusable_tokens(), 9);
  EXPECT_FALSE(plain.first().scoring());
  EXPECT_EQ(scores.first().reusable_tokens(), 0);
  EXPECT_TRUE(scores.first().View().scores);
  for (int64_t row = 0; row < 9; ++row) {
    EXPECT_TRUE(scores.first().scoring());
    scores.scores.Add(row, {.token = 7});
  }
  EXPECT_FALSE(scores.first().View().scores);
  EXPECT_EQ(scores.first().reusable_tokens(), 9);
}

TEST(SequenceTest, AHistoryIsKeptOnlyWhereAPenaltyReadsIt) {
  EngineRequest penalised = Request(3, 4);
  penalised.sampling.presence_penalty = 0.5f;
  RequestGroup plain(Request(3, 4), 1, {}), counting(std::move(penalised), 2, {});
  plain.Reserve();
  counting.Reserve();
  for (RequestGroup* group : {&plain, &counting}) {
    group->first().Append(7);
    group->first().Append(8);
  }
  EXPECT_TRUE(plain.first().history().empty());
  ASSERT_EQ(counting.first().history().size(), 2u);
  EXPECT_EQ(counting.first().history()[0].token, 7);
  EXPECT_EQ(counting.first().history()[0].in_answer, 1);
  EXPECT_EQ(counting.first().history()[1].token, 8);
  EXPECT_GT(counting.first().reserved_bytes(), plain.first().reserved_bytes());
}

}  // namespace
}  // namespace renga
