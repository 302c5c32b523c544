// PrefixCache beside a naive cache that keeps every history in full: sequences that
// begin, grow, end, are preempted or cut, in a pool that is too small for them, with
// tokens so alike that prefixes collide all the time. Whatever page is handed out must
// hold exactly the history that is continued.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/prefix_cache.h"

namespace renga {
namespace {

using Tokens = std::vector<TokenId>;

// Histories in full, looked through from end to end.
class NaiveCache {
 public:
  struct Entry {
    std::string salt;
    Tokens history;      // From the first token of the sequence to the last of the page.
    int64_t let_go = 0;  // When the last holder did so.
  };
  std::map<PageId, Entry> entries;

  static size_t PageIndex(const Entry& entry) { return (entry.history.size() - 1) / 64; }

  const PageId* Whole(const std::string& salt, const Tokens& tokens, size_t page) const {
    const size_t size = (page + 1) * 64;
    if (size > tokens.size()) return nullptr;
    for (const auto& [id, entry] : entries) {
      if (entry.salt == salt && entry.history.size() == size &&
          std::equal(entry.history.begin(), entry.history.end(), tokens.begin())) {
        return &id;
      }
    }
    return nullptr;
  }

  // Tokens that match, and the whole pages among them.
  int64_t Match(const std::string& salt, const Tokens& tokens, int64_t limit,
                std::vector<PageId>& pages) const {
    const Tokens wanted(tokens.begin(), tokens.begin() + limit);
    pages.clear();
    while (const PageId* id = Whole(salt, wanted, pages.size())) pages.push_back(*id);
    int64_t best = static_cast<int64_t>(pages.size()) * 64;
    for (const auto& [id, entry] : entries) {
      if (entry.salt != salt || PageIndex(entry) != pages.size()) continue;
      const auto end = std::mismatch(wanted.begin(), wanted.end(), entry.history.begin(),
                                     entry.history.end());
      best = std::max<int64_t>(best, end.first - wanted.begin());
    }
    return best;
  }

  // The first in order of tokens that begins with all of `history`, within one page.
  std::optional<PageId> Covering(const std::string& salt, const Tokens& history) const {
    std::optional<PageId> found;
    for (const auto& [id, entry] : entries) {
      if (entry.salt != salt ||
          (entry.history.size() - 1) / 64 != (history.size() - 1) / 64)
        continue;
      if (!BeginsWith(entry.history, history)) continue;
      if (!found || entry.history < entries.at(*found).history) found = id;
    }
    return found;
  }

  static bool BeginsWith(const Tokens& all, const Tokens& head) {
    return all.size() >= head.size() && std::equal(head.begin(), head.end(), all.begin());
  }

  bool HasChildren(const Entry& of) const {
    return std::any_of(entries.begin(), entries.end(), [&](const auto& other) {
      const Entry& entry = other.second;
      return entry.salt == of.salt && PageIndex(entry) == PageIndex(of) + 1 &&
             BeginsWith(entry.history, of.history);
    });
  }
};

class Simulation {
 public:
  explicit Simulation(uint32_t seed) : rng_(seed) {}

  void Run(int operations) {
    for (int i = 0; i < operations; ++i) {
      ++now_;
      Operate();
      Check();
      if (testing::Test::HasFatalFailure()) return;
    }
    while (!running_.empty()) {
      ++now_;
      End(running_.size() - 1, true);
    }
    Check();
    EXPECT_EQ(cache_.Flush(), static_cast<int64_t>(naive_.entries.size()));
    EXPECT_EQ(pool_.free(), pool_.total());
    EXPECT_EQ(cache_.pages(), 0);
    EXPECT_GT(hits_, operations / 50) << "the run is to be full of collisions";
    EXPECT_GT(swaps_, operations / 500);
    EXPECT_GT(evictions_, operations / 50);
  }

 private:
  struct Running {
    std::string salt;
    Tokens tokens;
    std::vector<PageRef> pages;
  };

  // Few different tokens, and one of them rare.
  TokenId AnyToken() {
    return rng_() % 40 == 0 ? 1 + static_cast<TokenId>(rng_() % 2) : 0;
  }
  std::string AnySalt() {
    return rng_() % 4 == 0 ? std::string(1 + rng_() % 2, 's') : "";
  }

  void Operate() {
    const size_t choice = rng_() % 100;
    const size_t any = running_.empty() ? 0 : rng_() % running_.size();
    if (choice < 15) return Start();
    if (choice == 15) return (void)EvictOne();
    if (choice == 16 && rng_() % 20 == 0) return Flush();
    if (running_.empty()) return;
    if (choice < 28) return End(any, rng_() % 4 != 0);
    for (size_t i = rng_() % 30; i > 0; --i) {
      if (!Grow(any)) return End(any, rng_() % 2 == 0);
    }
  }

  void Start() {
    if (running_.size() >= 5) return;
    Running sequence{.salt = AnySalt(), .tokens = {}, .pages = {}};
    Tokens prompt;
    for (size_t i = 1 + rng_() % 200; i > 0; --i) prompt.push_back(AnyToken());
    const int64_t limit = static_cast<int64_t>(prompt.size()) - 1;
    std::vector<PageId> whole;
    const int64_t expected = naive_.Match(sequence.salt, prompt, limit, whole);
    const PrefixCache::Length length = cache_.Find(sequence.salt, prompt, limit);
    ASSERT_EQ(length.tokens, expected);
    int64_t held = 0;
    for (const PageId page : whole) held += Held(page) ? 1 : 0;
    ASSERT_EQ(length.held_pages, held);

    PrefixCache::Match match = cache_.Take(sequence.salt, prompt, limit);
    ASSERT_EQ(match.tokens(), expected);
    ASSERT_EQ(match.pages.size(), whole.size());
    if (expected > 0) ++hits_;
    sequence.tokens.assign(prompt.begin(), prompt.begin() + expected);
    for (size_t i = 0; i < whole.size(); ++i) {
      ASSERT_EQ(match.pages[i].id(), whole[i]);
      ASSERT_EQ(content_.at(whole[i]),
                Tokens(prompt.begin(), prompt.begin() + 64 * (i + 1)));
      ASSERT_EQ(salt_of_.at(whole[i]), sequence.salt);
    }
    sequence.pages = std::move(match.pages);
    if (match.head_tokens > 0) {
      // The page whose head is copied has exactly the history that is continued.
      ASSERT_EQ(salt_of_.at(match.head.id()), sequence.salt);
      ASSERT_TRUE(NaiveCache::BeginsWith(content_.at(match.head.id()), sequence.tokens));
      running_.push_back(std::move(sequence));
      const PageId head = match.head.id();
      PageRef page = AllocatePage(match.head.id());
      match.head.Reset();
      if (naive_.entries.contains(head)) naive_.entries.at(head).let_go = now_;
      if (!page) return End(running_.size() - 1, false);
      content_[page.id()] = running_.back().tokens;
      salt_of_[page.id()] = running_.back().salt;
      running_.back().pages.push_back(std::move(page));
    } else {
      running_.push_back(std::move(sequence));
    }
    for (size_t i = running_.back().tokens.size(); i < prompt.size(); ++i) {
      if (!Append(running_.size() - 1, prompt[i])) return End(running_.size() - 1, false);
    }
  }

  bool Grow(size_t index) {
    return running_[index].tokens.size() < 300 && Append(index, AnyToken());
  }

  // False: no page is left.
  bool Append(size_t index, TokenId token) {
    Running& sequence = running_[index];
    if (sequence.tokens.size() % 64 == 0) {
      PageRef page = AllocatePage(-1);
      if (!page) return false;
      sequence.pages.push_back(std::move(page));
    }
    sequence.tokens.push_back(token);
    content_[sequence.pages.back().id()] = sequence.tokens;
    salt_of_[sequence.pages.back().id()] = sequence.salt;
    if (sequence.tokens.size() % 64 == 0) Enter(sequence, sequence.pages.size() - 1);
    return true;
  }

  PageRef AllocatePage(PageId copied) {
    copied_ = copied;
    PageRef page = pool_.Allocate();
    if (!page && EvictOne()) page = pool_.Allocate();
    copied_ = -1;
    return page;
  }

  // Enters the pages from `first` on into both caches.
  void Enter(Running& sequence, size_t first) {
    std::vector<PageId> expected;
    for (size_t i = first; i < sequence.pages.size(); ++i) {
      const size_t size = std::min(sequence.tokens.size(), 64 * (i + 1));
      const Tokens history(sequence.tokens.begin(),
                           sequence.tokens.begin() + static_cast<std::ptrdiff_t>(size));
      const PageId own = sequence.pages[i].id();
      const std::optional<PageId> known = naive_.Covering(sequence.salt, history);
      expected.push_back(known && size % 64 == 0 ? *known : own);
      if (known) {
        naive_.entries.at(*known).let_go = now_;
        if (size % 64 == 0 && *known != own) ++swaps_;
        continue;
      }
      std::erase_if(naive_.entries, [&](const auto& other) {
        const NaiveCache::Entry& entry = other.second;
        return entry.salt == sequence.salt && (entry.history.size() - 1) / 64 == i &&
               NaiveCache::BeginsWith(history, entry.history);
      });
      naive_.entries[own] = {.salt = sequence.salt, .history = history, .let_go = now_};
    }
    cache_.Insert(sequence.salt, sequence.tokens, sequence.pages, first);
    for (size_t i = first; i < sequence.pages.size(); ++i) {
      ASSERT_EQ(sequence.pages[i].id(), expected[i - first]);
    }
  }

  void End(size_t index, bool enter) {
    Running& sequence = running_[index];
    if (enter) Enter(sequence, rng_() % 2 == 0 ? 0 : sequence.tokens.size() / 64);
    for (const PageRef& page : sequence.pages) {
      const auto entry = naive_.entries.find(page.id());
      if (entry != naive_.entries.end()) entry->second.let_go = now_;
    }
    // Whichever of its pages goes first.
    if (rng_() % 2 == 0) {
      while (!sequence.pages.empty()) sequence.pages.pop_back();
    }
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  bool Held(PageId page) const {
    return page == copied_ ||
           std::any_of(running_.begin(), running_.end(), [&](const Running& sequence) {
             return std::any_of(sequence.pages.begin(), sequence.pages.end(),
                                [&](const PageRef& ref) { return ref.id() == page; });
           });
  }

  bool EvictOne() {
    ++now_;
    std::optional<PageId> oldest;
    for (const auto& [id, entry] : naive_.entries) {
      if (Held(id) || naive_.HasChildren(entry)) continue;
      if (!oldest || entry.let_go < naive_.entries.at(*oldest).let_go) oldest = id;
    }
    EXPECT_EQ(cache_.Evict(), oldest.has_value());
    if (!oldest) return false;
    EXPECT_EQ(pool_.references(*oldest), 0) << "another page was given up";
    naive_.entries.erase(*oldest);
    ++evictions_;
    return true;
  }

  void Flush() {
    cache_.Flush();
    std::erase_if(naive_.entries, [&](const auto& entry) { return !Held(entry.first); });
  }

  void Check() {
    ASSERT_EQ(pool_.free() + pool_.used(), pool_.total());
    ASSERT_EQ(cache_.pages(), static_cast<int64_t>(naive_.entries.size()));
    int64_t evictable = 0;
    std::set<PageId> used;
    for (const auto& [id, entry] : naive_.entries) {
      evictable += Held(id) ? 0 : 1;
      used.insert(id);
      ASSERT_EQ(content_.at(id), entry.history);
    }
    for (const Running& sequence : running_) {
      for (const PageRef& page : sequence.pages) used.insert(page.id());
    }
    ASSERT_EQ(cache_.evictable(), evictable);
    ASSERT_EQ(pool_.used(), static_cast<int64_t>(used.size()));
  }

  std::mt19937 rng_;
  KvPool pool_{14};
  PrefixCache cache_{pool_};
  NaiveCache naive_;
  std::vector<Running> running_;
  std::map<PageId, Tokens> content_;  // What was computed into each page.
  std::map<PageId, std::string> salt_of_;
  PageId copied_ = -1;
  int64_t now_ = 0;
  int64_t hits_ = 0;
  int64_t swaps_ = 0;
  int64_t evictions_ = 0;
};

TEST(PrefixCacheModelTest, AHundredThousandOperationsAgreeWithANaiveCache) {
  for (const uint32_t seed : {1u, 2u, 3u, 4u}) {
    Simulation(seed).Run(25000);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace renga
