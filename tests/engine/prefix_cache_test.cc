// PrefixCache: what matches, who holds what, what goes first; and a long random run
// beside a naive cache that keeps every history in full.

#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/models/allocation_meter.h"

namespace renga {
namespace {

using Tokens = std::vector<TokenId>;

// `count` tokens that depend on `kind` and their position.
Tokens Text(int64_t count, TokenId kind = 0) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(1000 * kind + static_cast<TokenId>(i % 900));
  }
  return tokens;
}

Tokens Joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PrefixCacheTest : public testing::Test {
 protected:
  // Pages for all of `tokens`, not known to the cache.
  std::vector<PageRef> Pages(const Tokens& tokens) {
    std::vector<PageRef> pages;
    for (int64_t i = 0; i < PagesFor(static_cast<int64_t>(tokens.size())); ++i) {
      pages.push_back(pool.Allocate());
      EXPECT_TRUE(pages.back());
    }
    return pages;
  }
  // A request that has ended. Returns its pages' ids.
  std::vector<PageId> Leave(const Tokens& tokens, const std::string& salt = "") {
    std::vector<PageRef> pages = Pages(tokens);
    cache.Insert(salt, tokens, pages);
    std::vector<PageId> ids;
    for (const PageRef& page : pages) ids.push_back(page.id());
    return ids;
  }
  int64_t Find(const Tokens& tokens, const std::string& salt = "") {
    return cache.Find(salt, tokens, static_cast<int64_t>(tokens.size()) - 1).tokens;
  }

  KvPool pool{40};
  PrefixCache cache{pool};
};

// ---- What matches --------------------------------------------------------------------

TEST_F(PrefixCacheTest, AnEmptyCacheKnowsNothing) {
  EXPECT_EQ(Find(Text(200)), 0);
  const PrefixCache::Match match = cache.Take("", Text(200), 199);
  EXPECT_TRUE(match.pages.empty());
  EXPECT_FALSE(match.head);
  EXPECT_EQ(match.tokens(), 0);
  EXPECT_EQ(cache.pages(), 0);
  EXPECT_FALSE(cache.Evict());
}

// The same prompt again: all but its last token, on every side of the page borders.
TEST_F(PrefixCacheTest, AKnownPromptIsFoundUpToItsLastToken) {
  for (const int64_t length : {1, 2, 63, 64, 65, 127, 128, 129}) {
    const Tokens prompt = Text(length, static_cast<TokenId>(length));
    const std::vector<PageId> ids = Leave(prompt);
    EXPECT_EQ(Find(prompt), length - 1);
    const PrefixCache::Match match = cache.Take("", prompt, length - 1);
    EXPECT_EQ(match.tokens(), length - 1);
    ASSERT_EQ(static_cast<int64_t>(match.pages.size()), (length - 1) / 64);
    for (size_t i = 0; i < match.pages.size(); ++i) {
      EXPECT_EQ(match.pages[i].id(), ids[i]);
    }
    EXPECT_EQ(match.head_tokens, (length - 1) % 64);
    if (match.head_tokens > 0) {
      EXPECT_EQ(match.head.id(), ids[match.pages.size()]);
    } else {
      EXPECT_FALSE(match.head);
    }
  }
}

TEST_F(PrefixCacheTest, ALongerPromptGoesOnWhereTheKnownOneEnds) {
  for (const int64_t length : {1, 63, 64, 65, 127, 128, 129}) {
    const Tokens known = Text(length, static_cast<TokenId>(length));
    Leave(known);
    EXPECT_EQ(Find(Joined(known, Text(70, 999))), length);
  }
}

TEST_F(PrefixCacheTest, AMatchEndsAtTheFirstTokenThatDiffers) {
  const Tokens known = Text(200);
  Leave(known);
  for (const size_t differs : {0u, 1u, 63u, 64u, 65u, 128u, 199u}) {
    Tokens other = known;
    other[differs] = 7777;
    other.resize(260, 5);
    EXPECT_EQ(Find(other), static_cast<int64_t>(differs));
  }
}

TEST_F(PrefixCacheTest, TheLimitIsObeyed) {
  const Tokens known = Text(150);
  Leave(known);
  for (const int64_t limit : {-5, 0, 1, 63, 64, 65, 128, 149, 150, 1000}) {
    const int64_t tokens = std::clamp<int64_t>(limit, 0, 150);
    EXPECT_EQ(cache.Find("", known, limit).tokens, tokens);
    EXPECT_EQ(cache.Take("", known, limit).tokens(), tokens);
  }
}

TEST_F(PrefixCacheTest, TheHeadComesFromTheSiblingThatSharesMost) {
  const Tokens start = Text(64);
  // Above and below what is looked for, some longer, one the head of another.
  Leave(Joined(start, {5, 5, 1}));
  Leave(Joined(start, {5, 5, 9}));
  Leave(Joined(start, {5, 6, 7, 7}));
  Leave(Joined(start, {5, 6, 7, 8, 1, 2}));
  Leave(Joined(start, {5, 6, 7, 9}));
  const auto longest = Leave(Joined(start, Joined({5, 6, 7, 8, 1}, Text(59, 3))));
  const Tokens wanted = Joined(start, {5, 6, 7, 8, 1, 3000, 3001, 8});
  const PrefixCache::Match match = cache.Take("", wanted, 71);
  EXPECT_EQ(match.tokens(), 64 + 7);
  EXPECT_EQ(match.head.id(), longest[1]);
}

TEST_F(PrefixCacheTest, NamespacesNeverShare) {
  const Tokens prompt = Text(100);
  Leave(prompt, "a");
  EXPECT_EQ(Find(prompt, "a"), 99);
  EXPECT_EQ(Find(prompt, "b"), 0);
  EXPECT_EQ(Find(prompt), 0);
  EXPECT_EQ(Find(prompt, std::string("a\0", 2)), 0);
  // Neither does what looks equal when the parts are put together.
  Leave(Tokens{'c', 'd'}, "ab");
  EXPECT_EQ(cache.Find("a", Tokens{'b', 'c', 'd'}, 3).tokens, 0);
  EXPECT_EQ(cache.Find("ab", Tokens{'c', 'd'}, 2).tokens, 2);
}

TEST_F(PrefixCacheTest, ANamespaceWithoutPagesIsForgotten) {
  const int64_t before = cache.bytes();
  for (int i = 0; i < 1000; ++i) {
    Leave(Text(10), "salt " + std::to_string(i) + std::string(100, '.'));
    while (cache.Evict()) {
    }
  }
  EXPECT_EQ(cache.bytes(), before);
  Leave(Text(10), "one more");
  EXPECT_GT(cache.bytes(), before);
}

// ---- Entering ------------------------------------------------------------------------

TEST_F(PrefixCacheTest, EqualWholePagesAreReplacedByThoseThatAreKnown) {
  const Tokens tokens = Text(128);
  std::vector<PageRef> first = Pages(tokens), second = Pages(tokens);
  cache.Insert("", tokens, first);
  cache.Insert("", tokens, second);
  EXPECT_EQ(second[0].id(), first[0].id());
  EXPECT_EQ(second[1].id(), first[1].id());
  EXPECT_EQ(pool.used(), 2) << "its own went back";
  EXPECT_EQ(cache.pages(), 2);
  EXPECT_EQ(cache.evictable(), 0);
}

TEST_F(PrefixCacheTest, PagesEnteredOneByOneMakeTheSameTree) {
  const Tokens tokens = Text(200);
  {
    std::vector<PageRef> pages = Pages(tokens);
    for (size_t i = 0; i < 3; ++i) {
      cache.Insert("", std::span(tokens).first(64 * (i + 1)), pages, i);
    }
    cache.Insert("", tokens, pages, 3);
    cache.Insert("", tokens, pages, 4);
  }
  EXPECT_EQ(cache.pages(), 4);
  EXPECT_EQ(Find(tokens), 199);
  cache.Insert("", {}, {});
  EXPECT_EQ(cache.pages(), 4);
}

TEST_F(PrefixCacheTest, APartOfWhatIsKnownIsNotKeptBesideIt) {
  const auto known = Leave(Text(100));
  Leave(Text(80));
  Leave(Text(100));
  EXPECT_EQ(cache.pages(), 2);
  EXPECT_EQ(pool.used(), 2);
  EXPECT_EQ(cache.Take("", Text(100), 99).head.id(), known[1]);
}

TEST_F(PrefixCacheTest, APartlyFilledPageGivesWayToOneThatBeginsWithIt) {
  Leave(Text(70));
  Leave(Text(100));
  EXPECT_EQ(cache.pages(), 2) << "a longer partly filled one";
  const auto whole = Leave(Text(128));
  EXPECT_EQ(cache.pages(), 2) << "the whole page";
  EXPECT_EQ(cache.Take("", Text(128), 128).pages.at(1).id(), whole[1]);
  Leave(Joined(Text(64), {5}));
  EXPECT_EQ(cache.pages(), 3) << "what differs stays";
}

TEST_F(PrefixCacheTest, APageWhoseHeadIsBeingCopiedStays) {
  const auto part = Leave(Text(70));
  const PrefixCache::Match match = cache.Take("", Text(90), 89);
  ASSERT_EQ(match.head.id(), part[1]);
  Leave(Text(128));
  EXPECT_EQ(cache.pages(), 3);
  EXPECT_EQ(pool.references(part[1]), 2);
  // Beside it, heads are still found where they are longest.
  EXPECT_EQ(Find(Joined(Text(100), {1, 2, 3})), 100);
}

TEST_F(PrefixCacheTest, EnteringAPageAllocatesNothing) {
  const Tokens tokens = Text(64 * 6);
  std::vector<PageRef> pages = Pages(tokens);
  const int64_t before = test::AllocationCount();
  if (before == 0) GTEST_SKIP() << "a sanitizer has its own operator new";
  for (size_t i = 0; i < 5; ++i) {
    cache.Insert("", std::span(tokens).first(64 * (i + 1)), pages, i);
  }
  for (PageRef& page : pages) page.Reset();
  cache.Find("", tokens, 100);
  cache.Flush();
  EXPECT_EQ(test::AllocationCount(), before);
}

// ---- Holders and eviction ------------------------------------------------------------

TEST_F(PrefixCacheTest, CountsThePagesOfAMatchThatSequencesHold) {
  Leave(Text(64 * 3 + 10));
  const Tokens prompt = Text(64 * 3 + 10);
  EXPECT_EQ(cache.Find("", prompt, 201).held_pages, 0);
  EXPECT_EQ(cache.evictable(), 4);
  const PrefixCache::Match match = cache.Take("", prompt, 130);
  ASSERT_EQ(match.pages.size(), 2u);
  EXPECT_EQ(cache.Find("", prompt, 201).held_pages, 3) << "the third one as a head";
  EXPECT_EQ(cache.Find("", prompt, 70).held_pages, 1);
  EXPECT_EQ(cache.evictable(), 1);
}

TEST_F(PrefixCacheTest, GivesUpTheLeastRecentlyUsedLeafFirst) {
  const auto a = Leave(Joined(Text(64), Text(64, 1)));
  const auto b = Leave(Joined(Text(64), Text(64, 2)));
  const auto c = Leave(Text(30, 3));
  ASSERT_EQ(b[0], a[0]);
  ASSERT_EQ(cache.pages(), 4);
  { const auto used_again = cache.Take("", Joined(Text(64), Text(64, 1)), 128); }

  const auto next = [&] {
    std::set<PageId> before;
    for (PageId page = 0; page < pool.total(); ++page) {
      if (pool.references(page) > 0) before.insert(page);
    }
    EXPECT_TRUE(cache.Evict());
    for (const PageId page : before) {
      if (pool.references(page) == 0) return page;
    }
    return PageId{-1};
  };
  EXPECT_EQ(next(), b[1]);
  EXPECT_EQ(next(), c[0]);
  EXPECT_EQ(next(), a[1]) << "children before their parents";
  EXPECT_EQ(next(), a[0]);
  EXPECT_FALSE(cache.Evict());
  EXPECT_EQ(pool.used(), 0);
}

TEST_F(PrefixCacheTest, WhatSequencesHoldIsNeitherEvictedNorFlushed) {
  Leave(Text(128));
  Leave(Text(64, 5));
  {
    const PrefixCache::Match match = cache.Take("", Text(128), 64);
    EXPECT_EQ(cache.evictable(), 2);
    EXPECT_EQ(cache.Flush(), 2);
    EXPECT_FALSE(cache.Evict());
    EXPECT_EQ(cache.pages(), 1);
    EXPECT_EQ(Find(Text(128)), 64);
  }
  EXPECT_EQ(cache.evictable(), 1);
  EXPECT_EQ(cache.Flush(), 1);
  EXPECT_EQ(pool.free(), pool.total());
}

TEST_F(PrefixCacheTest, AKnownPageIsUsedWhenItIsEnteredAgain) {
  Leave(Text(30, 1));
  Leave(Text(30, 2));
  Leave(Text(20, 1));  // Nothing new, but it was asked for just now.
  ASSERT_TRUE(cache.Evict());
  EXPECT_EQ(Find(Text(30, 1)), 29);
  EXPECT_EQ(Find(Text(30, 2)), 0);
}

TEST(PrefixCacheEndTest, ACacheThatGoesLeavesThePagesThatSequencesHold) {
  KvPool pool(4);
  PrefixCache::Match match;
  {
    PrefixCache cache(pool);
    const Tokens tokens = Text(128);
    std::vector<PageRef> pages;
    pages.push_back(pool.Allocate());
    pages.push_back(pool.Allocate());
    cache.Insert("", tokens, pages);
    match = cache.Take("", tokens, 64);
  }
  EXPECT_EQ(pool.used(), 1);
  EXPECT_EQ(match.pages.size(), 1u);
}

}  // namespace
}  // namespace renga
