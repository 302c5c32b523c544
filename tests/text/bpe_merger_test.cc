#include "text/bpe_merger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>

namespace renga {
namespace {

using testing::ElementsAre;

std::vector<TokenId> Merged(const BpeMerger& merger, std::string_view piece) {
  BpeMerger::Scratch scratch;
  std::vector<TokenId> ids;
  merger.Append(piece, scratch, ids);
  return ids;
}

TEST(BpeMergerTest, TheLowestRankMergesFirstThenTheLeftmost) {
  BpeMerger merger;
  for (const char c : {'a', 'b', 'c'}) merger.SetByte(static_cast<uint8_t>(c), c);
  merger.AddMerge('b', 'c', {.rank = 0, .merged = 300});
  merger.AddMerge('a', 'b', {.rank = 1, .merged = 301});
  merger.AddMerge('a', 'a', {.rank = 2, .merged = 302});
  EXPECT_THAT(Merged(merger, "abc"), ElementsAre('a', 300));
  EXPECT_THAT(Merged(merger, "ab"), ElementsAre(301));
  EXPECT_THAT(Merged(merger, "aaa"), ElementsAre(302, 'a'));
  EXPECT_THAT(Merged(merger, ""), ElementsAre());
}

TEST(BpeMergerTest, TheFirstMergeOfAPairStays) {
  BpeMerger merger;
  EXPECT_TRUE(merger.AddMerge(1, 2, {.rank = 0, .merged = 3}));
  EXPECT_FALSE(merger.AddMerge(1, 2, {.rank = 5, .merged = 4}));
}

// The definition: look at all pairs, merge the best, again.
std::vector<TokenId> Naive(
    const std::map<std::pair<TokenId, TokenId>, BpeMerger::Merge>& merges,
    std::vector<TokenId> ids) {
  while (true) {
    size_t best = ids.size();
    int32_t rank = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = merges.find({ids[i], ids[i + 1]});
      if (found == merges.end()) continue;
      if (best != ids.size() && found->second.rank >= rank) continue;
      best = i;
      rank = found->second.rank;
    }
    if (best == ids.size()) return ids;
    ids[best] = merges.at({ids[best], ids[best + 1]}).merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BpeMergerTest, RandomMergesAgreeWithTheDefinition) {
  std::mt19937 rng(20240611);
  for (int round = 0; round < 300; ++round) {
    BpeMerger merger;
    std::map<std::pair<TokenId, TokenId>, BpeMerger::Merge> merges;
    std::vector<TokenId> known = {'a', 'b', 'c'};
    for (const TokenId id : known) merger.SetByte(static_cast<uint8_t>(id), id);
    for (int32_t rank = 0; rank < 12; ++rank) {
      const TokenId left = known[rng() % known.size()];
      const TokenId right = known[rng() % known.size()];
      const BpeMerger::Merge merge{.rank = rank, .merged = 300 + rank};
      if (!merges.emplace(std::pair{left, right}, merge).second) continue;
      merger.AddMerge(left, right, merge);
      known.push_back(merge.merged);
    }
    for (int n = 0; n < 20; ++n) {
      std::string piece;
      for (size_t length = rng() % 24; length > 0; --length) {
        piece += static_cast<char>('a' + rng() % 3);
      }
      ASSERT_EQ(Merged(merger, piece), Naive(merges, {piece.begin(), piece.end()}))
          << piece;
    }
  }
}

// Case A5: the heap works a constant number of times per byte, whatever the piece.
TEST(BpeMergerTest, TheWorkIsLinearInHeapOperations) {
  BpeMerger merger;
  merger.SetByte('a', 0);
  for (TokenId i = 0; i < 20; ++i) merger.AddMerge(i, i, {.rank = i, .merged = i + 1});
  BpeMerger::Scratch scratch;
  for (const int64_t bytes : {1 << 10, 1 << 14, 1 << 18}) {
    std::vector<TokenId> ids;
    const std::string piece(static_cast<size_t>(bytes), 'a');
    EXPECT_LE(merger.Append(piece, scratch, ids), 4 * bytes);
    EXPECT_THAT(ids, ElementsAre(static_cast<TokenId>(std::lround(std::log2(bytes)))));
  }
}

}  // namespace
}  // namespace renga
