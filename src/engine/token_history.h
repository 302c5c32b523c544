// TokenHistory: how often each token has come in a sequence so far, for the penalties.
//
// One list of counts, which the backend reads as it is, and an open hash table that finds
// a token's place in it: adding a token costs one look-up.
//
// Thread safety: none; the engine thread's. Nothing is allocated after Reserve.
// Invariants: each token stands in `counts` once; the table is at most half full.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "renga/backend.h"

namespace renga {

class TokenHistory {
 public:
  // Of what Reserve takes, at least.
  static constexpr size_t kBytesPerToken = sizeof(TokenCount) + 2 * sizeof(int32_t);

  // Makes room for so many tokens of prompt and answer together.
  void Reserve(int64_t tokens);
  // REQUIRES: within what was reserved.
  void AddPrompt(TokenId token) { At(token); }
  void AddAnswer(TokenId token) { ++At(token).in_answer; }

  // In the order in which the tokens first came.
  std::span<const TokenCount> counts() const { return counts_; }

 private:
  TokenCount& At(TokenId token);

  std::vector<TokenCount> counts_;
  std::vector<int32_t> table_;  // 1 + index into counts_; 0: free. A power of two long.
};

}  // namespace renga
