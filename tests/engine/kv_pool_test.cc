// KvPool: pages give themselves back, shared ones with their last holder; a watcher hears
// of the pages it watches.

#include "engine/kv_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace renga {
namespace {

TEST(KvPoolTest, HandsOutEveryPageOnceAndThenNone) {
  KvPool pool(3);
  const PageRef a = pool.Allocate(), b = pool.Allocate(), c = pool.Allocate();
  EXPECT_EQ((std::set<PageId>{a.id(), b.id(), c.id()}), (std::set<PageId>{0, 1, 2}));
  EXPECT_FALSE(pool.Allocate());
  EXPECT_EQ(pool.free(), 0);
  EXPECT_EQ(pool.used(), 3);
}

TEST(KvPoolTest, AHandleGivesItsPageBackOnceHoweverItIsMoved) {
  KvPool pool(2);
  {
    PageRef a = pool.Allocate();
    PageRef b = std::move(a);
    EXPECT_FALSE(a);  // NOLINT: that it is empty is the point.
    b = pool.Allocate();
    EXPECT_EQ(pool.used(), 1) << "the page that b held went back";
  }
  EXPECT_EQ(pool.free(), 2);
}

TEST(KvPoolTest, ASharedPageIsFreeWithItsLastHolder) {
  KvPool pool(1);
  PageRef a = pool.Allocate();
  PageRef b = a.Share();
  EXPECT_EQ(pool.references(a.id()), 2);
  a.Reset();
  EXPECT_EQ(pool.free(), 0);
  EXPECT_EQ(b.id(), 0);
  b.Reset();
  EXPECT_EQ(pool.free(), 1);
}

// What the pool told, in order: +page when it became shared, -page when it no longer was.
class WatcherLog final : public PageWatcher {
 public:
  void OnShared(PageId page) override { told.push_back(1 + page); }
  void OnUnshared(PageId page) override { told.push_back(-1 - page); }
  std::vector<int> told;
};

TEST(KvPoolTest, AWatcherHearsWhenOthersBeginAndCeaseToHoldAWatchedPage) {
  KvPool pool(2);
  WatcherLog log;
  pool.SetWatcher(&log);
  PageRef kept = pool.Allocate();
  const PageRef not_watched = pool.Allocate();
  ASSERT_EQ(kept.id(), 0);
  pool.Watch(0);
  {
    const PageRef second = kept.Share();
    EXPECT_EQ(log.told, (std::vector<int>{1}));
    const PageRef third = second.Share();
    const PageRef other = not_watched.Share();
    EXPECT_EQ(log.told.size(), 1u) << "only the first of the others, only of that page";
  }
  EXPECT_EQ(log.told, (std::vector<int>{1, -1}));
  pool.Unwatch(0);
  { const PageRef second = kept.Share(); }
  EXPECT_EQ(log.told.size(), 2u);
  pool.SetWatcher(nullptr);
}

TEST(KvPoolDeathTest, AWatchedPageCannotBeLost) {
  KvPool pool(1);
  WatcherLog log;
  pool.SetWatcher(&log);
  PageRef page = pool.Allocate();
  pool.Watch(page.id());
  EXPECT_DEATH(page.Reset(), "references > 0");
  EXPECT_DEATH(pool.SetWatcher(nullptr), "watched_pages_ == 0");
  pool.Unwatch(page.id());
}

TEST(KvPoolTest, UnderRandomTrafficFreeAndUsedAlwaysMakeTheTotal) {
  KvPool pool(10);
  std::mt19937 rng(3);
  std::vector<PageRef> held;
  for (int i = 0; i < 5000; ++i) {
    if (rng() % 2 == 0) {
      PageRef page = pool.Allocate();
      if (page) held.push_back(std::move(page));
    } else if (!held.empty()) {
      if (rng() % 3 == 0) held.push_back(held[rng() % held.size()].Share());
      std::swap(held[rng() % held.size()], held.back());
      held.pop_back();
    }
    std::set<PageId> pages;
    for (const PageRef& page : held) pages.insert(page.id());
    ASSERT_EQ(pool.used(), static_cast<int64_t>(pages.size()));
    ASSERT_EQ(pool.free() + pool.used(), pool.total());
  }
}

}  // namespace
}  // namespace renga
