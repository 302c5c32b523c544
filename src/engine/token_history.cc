#include "engine/token_history.h"

#include <bit>

#include "base/check.h"

namespace renga {

void TokenHistory::Reserve(int64_t tokens) {
  counts_.reserve(static_cast<size_t>(tokens));
  table_.assign(std::bit_ceil(2 * static_cast<size_t>(tokens) + 1), 0);
}

TokenCount& TokenHistory::At(TokenId token) {
  const size_t mask = table_.size() - 1;
  // Fibonacci hashing: ids that follow one another land far apart.
  const uint64_t hash = static_cast<uint64_t>(token) * 0x9e3779b97f4a7c15u;
  size_t slot = static_cast<size_t>(hash >> 32) & mask;
  while (table_[slot] != 0) {
    TokenCount& count = counts_[static_cast<size_t>(table_[slot] - 1)];
    if (count.token == token) return count;
    slot = (slot + 1) & mask;
  }
  RENGA_CHECK(counts_.size() < counts_.capacity());
  counts_.push_back({.token = token, .in_answer = 0});
  table_[slot] = static_cast<int32_t>(counts_.size());
  return counts_.back();
}

}  // namespace renga
