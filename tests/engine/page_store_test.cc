// PageStore: pages between pool, prefix cache and sequences.

#include "engine/page_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/request_group.h"
#include "tests/fakes/fake_backend.h"

namespace renga {
namespace {

using testing::ElementsAreArray;

class PageStoreTest : public testing::Test {
 protected:
  static constexpr int64_t kPages = 8;

  void SetUp() override { ASSERT_TRUE(backend_.CreateKvPool({}, kPages).ok()); }

  std::unique_ptr<RequestGroup> Group(int64_t tokens, int32_t n = 1, bool use = true) {
    EngineRequest request;
    for (int64_t i = 0; i < tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>(i));
    }
    request.max_tokens = 100;
    request.n = n;
    request.use_prefix_cache = use;
    auto group = std::make_unique<RequestGroup>(std::move(request), 1, TimePoint{});
    group->Reserve();
    return group;
  }
  // As if a step had computed so many rows.
  static void Compute(PageStore& store, Sequence& sequence, int64_t rows) {
    ASSERT_TRUE(store.Grow(sequence, sequence.computed() + rows));
    sequence.Advance(rows);
    store.Enter(sequence);
  }
  static void ExpectSum(const PageStore& store) {
    EXPECT_EQ(store.free() + store.cached() + store.used(), kPages);
  }

  FakeBackend backend_;
};

TEST_F(PageStoreTest, TakesAPageForEveryStartedSixtyFourPositionsAndNeverShrinks) {
  PageStore store(kPages, true, backend_);
  const auto group = Group(10);
  Sequence& sequence = group->first();
  EXPECT_TRUE(store.Grow(sequence, 64));
  EXPECT_EQ(sequence.pages(), 1);
  EXPECT_TRUE(store.Grow(sequence, 65));
  EXPECT_TRUE(store.Grow(sequence, 1));
  EXPECT_EQ(sequence.pages(), 2);
  EXPECT_FALSE(store.Grow(sequence, 64 * kPages + 1)) << "more than there are";
  ExpectSum(store);
}

TEST_F(PageStoreTest, WholePagesAreSharedWhileTheirFirstOwnerRuns) {
  PageStore store(kPages, true, backend_);
  const auto first = Group(150), second = Group(150);
  Compute(store, first->first(), 150);
  EXPECT_EQ(store.Find(second->first()).tokens, 128);
  EXPECT_EQ(store.Find(second->first()).held_pages, 2);
  ASSERT_TRUE(store.Take(second->first()).ok());
  EXPECT_EQ(second->first().computed(), 128);
  EXPECT_EQ(second->first().worked(), 0);
  EXPECT_THAT(second->first().page_table(),
              ElementsAreArray(first->first().page_table().first(2)));
  EXPECT_EQ(store.used(), 3);
  ExpectSum(store);
}

TEST_F(PageStoreTest, TheLastPageIsEnteredWhenItsOwnerGivesItUp) {
  PageStore store(kPages, true, backend_);
  const auto first = Group(150), second = Group(150);
  Compute(store, first->first(), 140);
  store.Release(first->first());
  EXPECT_EQ(store.cached(), 3);
  EXPECT_EQ(store.used(), 0);
  ASSERT_TRUE(store.Take(second->first()).ok());
  EXPECT_EQ(second->first().computed(), 140) << "only what was computed";
  EXPECT_EQ(second->first().pages(), 3);
  EXPECT_EQ(store.used(), 3) << "two shared pages and a copy";
  ExpectSum(store);
}

TEST_F(PageStoreTest, PagesBeyondWhatWasComputedAreNotEntered) {
  PageStore store(kPages, true, backend_);
  const auto group = Group(200);
  Compute(store, group->first(), 64);
  ASSERT_TRUE(store.Grow(group->first(), 200));  // The step that follows fails.
  store.Release(group->first());
  EXPECT_EQ(store.cached(), 1);
  EXPECT_EQ(store.free(), kPages - 1);
}

TEST_F(PageStoreTest, CachedPagesMakeRoomAndAreCounted) {
  PageStore store(kPages, true, backend_);
  const auto first = Group(64 * 6);
  Compute(store, first->first(), 64 * 6);
  store.Release(first->first());
  EXPECT_EQ(store.available(), kPages);
  const auto second = Group(64 * 5, 1, false);
  EXPECT_TRUE(store.Grow(second->first(), 64 * 5));
  EXPECT_EQ(store.evictions(), 3);
  EXPECT_EQ(store.cached(), 3);
  EXPECT_EQ(store.Flush(), 3);
  EXPECT_EQ(store.evictions(), 3);
  ExpectSum(store);
}

TEST_F(PageStoreTest, AForkSharesWholePagesAndCopiesTheRest) {
  for (const bool use : {true, false}) {
    PageStore store(kPages, true, backend_);
    const auto group = Group(130, 3, use);
    Compute(store, group->first(), 130);
    Sequence& second = group->choices()[1];
    ASSERT_TRUE(store.Fork(group->first(), 130, second).ok());
    EXPECT_EQ(second.computed(), 130);
    EXPECT_EQ(second.page_table()[1], group->first().page_table()[1]);
    EXPECT_NE(second.page_table()[2], group->first().page_table()[2]);
    EXPECT_EQ(store.used(), 4);
    Sequence& third = group->choices()[2];
    ASSERT_TRUE(store.Fork(group->first(), 128, third).ok());
    EXPECT_EQ(third.pages(), 2);
    EXPECT_EQ(store.used(), 4);
    const std::vector<const Sequence*> all = {&group->first(), &second, &third};
    EXPECT_EQ(store.CountDistinct(all), 4);
    ExpectSum(store);
  }
}

TEST_F(PageStoreTest, AForkWithoutAFreePageLeavesTheRestToBeComputed) {
  PageStore store(kPages, true, backend_);
  const auto group = Group(64 * kPages - 10, 2);
  Compute(store, group->first(), 64 * kPages - 10);
  Sequence& second = group->choices()[1];
  ASSERT_TRUE(store.Fork(group->first(), 64 * kPages - 10, second).ok());
  EXPECT_EQ(second.computed(), 64 * (kPages - 1));
  EXPECT_GT(second.uncomputed(), 0);
}

TEST_F(PageStoreTest, LooksAgainOnlyAfterSomethingWasEntered) {
  PageStore store(kPages, true, backend_);
  const auto first = Group(150), second = Group(150);
  ASSERT_TRUE(store.Take(second->first()).ok());
  EXPECT_FALSE(store.HasMore(second->first()));
  Compute(store, first->first(), 100);
  EXPECT_TRUE(store.HasMore(second->first()));
  ASSERT_TRUE(store.Take(second->first()).ok());
  EXPECT_EQ(second->first().computed(), 64);
  EXPECT_FALSE(store.HasMore(second->first()));
}

TEST_F(PageStoreTest, WithoutReuseNothingIsCached) {
  PageStore store(kPages, false, backend_);
  const auto first = Group(150), second = Group(150);
  Compute(store, first->first(), 150);
  EXPECT_EQ(store.Find(second->first()).tokens, 0);
  store.Release(first->first());
  EXPECT_EQ(store.free(), kPages);
}

}  // namespace
}  // namespace renga
