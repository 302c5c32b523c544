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
  static constexpr int32_t kSequences = 3;

  void SetUp() override { MakePool(KvDtype::kF16); }
  void MakePool(KvDtype dtype) {
    ASSERT_TRUE(backend_.Configure({}, {.max_sequences = kSequences}).ok());
    ASSERT_TRUE(backend_.CreateKvPool({.dtype = dtype}, kPages).ok());
  }

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
  // Writes the tokens into the fake's pages, as a step would; so a copy can be seen.
  void Write(Sequence& sequence) {
    const std::span<const TokenId> tokens = sequence.tokens();
    const SequenceRows rows{.rows = static_cast<int32_t>(tokens.size()),
                            .pages = sequence.page_table(),
                            .open_page = sequence.open_page()};
    ASSERT_TRUE(
        backend_
            .BeginStep({.tokens = tokens, .sequences = {&rows, 1}, .logit_rows = {}}, {})
            .ok());
  }

  FakeBackend backend_;
};

TEST_F(PageStoreTest, TakesAPageForEveryStartedSixtyFourPositionsAndNeverShrinks) {
  PageStore store(kPages, kSequences, true, backend_);
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
  PageStore store(kPages, kSequences, true, backend_);
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
  PageStore store(kPages, kSequences, true, backend_);
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
  PageStore store(kPages, kSequences, true, backend_);
  const auto group = Group(200);
  Compute(store, group->first(), 64);
  ASSERT_TRUE(store.Grow(group->first(), 200));  // The step that follows fails.
  store.Release(group->first());
  EXPECT_EQ(store.cached(), 1);
  EXPECT_EQ(store.free(), kPages - 1);
}

TEST_F(PageStoreTest, CachedPagesMakeRoomAndAreCounted) {
  PageStore store(kPages, kSequences, true, backend_);
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
    PageStore store(kPages, kSequences, true, backend_);
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
  PageStore store(kPages, kSequences, true, backend_);
  const auto group = Group(64 * kPages - 10, 2);
  Compute(store, group->first(), 64 * kPages - 10);
  Sequence& second = group->choices()[1];
  ASSERT_TRUE(store.Fork(group->first(), 64 * kPages - 10, second).ok());
  EXPECT_EQ(second.computed(), 64 * (kPages - 1));
  EXPECT_GT(second.uncomputed(), 0);
}

TEST_F(PageStoreTest, LooksAgainOnlyAfterSomethingWasEntered) {
  PageStore store(kPages, kSequences, true, backend_);
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
  PageStore store(kPages, kSequences, false, backend_);
  const auto first = Group(150), second = Group(150);
  Compute(store, first->first(), 150);
  EXPECT_EQ(store.Find(second->first()).tokens, 0);
  store.Release(first->first());
  EXPECT_EQ(store.free(), kPages);
}

class OpenPagesTest : public PageStoreTest {
 protected:
  void SetUp() override { MakePool(KvDtype::kInt8); }
};

TEST_F(OpenPagesTest, OneComesWithTheFirstPageAndGoesWithTheLast) {
  PageStore store(kPages, kSequences, true, backend_);
  EXPECT_EQ(store.open_total(), kSequences);
  const auto group = Group(150);
  Sequence& sequence = group->first();
  EXPECT_LT(sequence.open_page(), 0);
  Compute(store, sequence, 150);
  EXPECT_GE(sequence.open_page(), 0);
  EXPECT_EQ(sequence.pages(), 3) << "the open page is none of them";
  EXPECT_EQ(store.open_free(), kSequences - 1);
  const PageId held = sequence.open_page();
  Compute(store, sequence, 0);
  EXPECT_EQ(sequence.open_page(), held);
  store.Release(sequence);
  EXPECT_LT(sequence.open_page(), 0);
  EXPECT_EQ(store.open_free(), kSequences);
}

TEST_F(OpenPagesTest, OtherDtypesHaveNone) {
  MakePool(KvDtype::kF16);
  PageStore store(kPages, kSequences, true, backend_);
  const auto group = Group(100);
  Compute(store, group->first(), 100);
  EXPECT_EQ(store.open_total(), 0);
  EXPECT_LT(group->first().open_page(), 0);
}

TEST_F(OpenPagesTest, ASequenceWithoutOneCannotGrow) {
  PageStore store(kPages, kSequences, true, backend_);
  std::vector<std::unique_ptr<RequestGroup>> groups;
  for (int i = 0; i <= kSequences; ++i) groups.push_back(Group(20));
  for (int i = 0; i < kSequences; ++i)
    Compute(store, groups[static_cast<size_t>(i)]->first(), 20);
  EXPECT_EQ(store.open_free(), 0);
  EXPECT_FALSE(store.Grow(groups.back()->first(), 20));
  EXPECT_EQ(groups.front()->first().DropOpenPage(), 20);
  EXPECT_TRUE(store.Grow(groups.back()->first(), 20));
}

TEST_F(OpenPagesTest, WhoLetsItGoKeepsItsWholePages) {
  PageStore store(kPages, kSequences, true, backend_);
  const auto group = Group(150);
  Sequence& sequence = group->first();
  Compute(store, sequence, 140);
  EXPECT_EQ(sequence.DropOpenPage(), 12);
  EXPECT_EQ(sequence.computed(), 128);
  EXPECT_EQ(sequence.worked(), 128);
  EXPECT_EQ(sequence.pages(), 3);
  EXPECT_EQ(store.open_free(), kSequences);
  EXPECT_EQ(sequence.DropOpenPage(), 0);
  Compute(store, sequence, 22);
  EXPECT_EQ(sequence.computed(), 150);
  ExpectSum(store);
}

TEST_F(OpenPagesTest, TheCacheKeepsAndGivesWholePagesAlone) {
  PageStore store(kPages, kSequences, true, backend_);
  const auto first = Group(150), second = Group(150), third = Group(100);
  Compute(store, first->first(), 140);
  store.Release(first->first());
  EXPECT_EQ(store.cached(), 2);
  EXPECT_EQ(store.free(), kPages - 2);
  EXPECT_EQ(store.Find(second->first()).tokens, 128);
  ASSERT_TRUE(store.Take(second->first()).ok());
  EXPECT_EQ(second->first().computed(), 128);
  EXPECT_EQ(second->first().pages(), 2);
  EXPECT_LT(second->first().open_page(), 0) << "until it computes";
  // The second page begins with all of the third one's tokens, and has no head.
  EXPECT_EQ(store.Find(third->first()).tokens, 64);
  ASSERT_TRUE(store.Take(third->first()).ok());
  EXPECT_EQ(third->first().computed(), 64);
  EXPECT_FALSE(store.HasMore(third->first()));
  ExpectSum(store);
}

TEST_F(OpenPagesTest, AForkCopiesTheOpenPage) {
  PageStore store(kPages, kSequences, true, backend_);
  const auto group = Group(130, 3);
  Compute(store, group->first(), 130);
  Write(group->first());
  Sequence& second = group->choices()[1];
  ASSERT_TRUE(store.Fork(group->first(), 130, second).ok());
  EXPECT_EQ(second.computed(), 130);
  EXPECT_EQ(second.pages(), 3);
  EXPECT_NE(second.open_page(), group->first().open_page());
  const std::span<const TokenId> tokens = group->first().tokens();
  EXPECT_EQ(backend_.OpenPage(second.open_page())[0], tokens[128]);
  EXPECT_EQ(backend_.OpenPage(second.open_page())[1], tokens[129]);
  EXPECT_EQ(store.open_free(), kSequences - 2);
  EXPECT_EQ(store.used(), 4);
  ExpectSum(store);
}

TEST_F(OpenPagesTest, AForkBeforeTheEndOfAClosedPageLeavesThatPageToBeComputed) {
  PageStore store(kPages, kSequences, true, backend_);
  const auto group = Group(128, 2);
  Compute(store, group->first(), 128);
  Sequence& second = group->choices()[1];
  ASSERT_TRUE(store.Fork(group->first(), 127, second).ok());
  EXPECT_EQ(second.computed(), 64);
  EXPECT_LT(second.open_page(), 0);
}

TEST_F(OpenPagesTest, AForkWithoutAFreeOneLeavesTheRestToBeComputed) {
  PageStore store(kPages, 1, true, backend_);
  const auto group = Group(70, 2);
  Compute(store, group->first(), 70);
  Sequence& second = group->choices()[1];
  ASSERT_TRUE(store.Fork(group->first(), 70, second).ok());
  EXPECT_EQ(second.computed(), 64);
  EXPECT_EQ(store.used(), 2) << "a page for nothing";
}

}  // namespace
}  // namespace renga
