// Finds tokens that stand in the text as they are: control tokens ("<|im_end|>") and
// user-defined ones, beside which nothing merges.
//
// A control token is found only inside trusted ranges. A user-defined one is an ordinary
// word of the model without a role in the turn structure (the reference finds it even
// when told to encode control tokens as plain text), so it is found everywhere.
//
// Leftmost first, of those the longest; one walk over a trie per position, bounded by
// the longest token (at most kMaxAddedTokenBytes).
//
// Thread safety: immutable after the last Add.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "renga/tokenizer.h"

namespace renga {

inline constexpr size_t kMaxAddedTokenBytes = 1024;

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool control = false;
  bool lstrip = false;       // Takes the white space before it along.
  bool rstrip = false;       // Takes the white space behind it along.
  bool single_word = false;  // Only where no word character touches it.
  bool normalized = false;   // Looked for after normalisation, not before.
};

class AddedTokens {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    TokenId id = -1;
  };

  AddedTokens() : nodes_(1) { first_.fill(-1); }

  // REQUIRES: content is not empty and at most kMaxAddedTokenBytes long.
  void Add(const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  // All matches in `text`, from left to right, not overlapping. `trusted` is sorted.
  std::vector<Match> Find(std::string_view text,
                          std::span<const ByteRange> trusted) const;

 private:
  struct Node {
    std::vector<std::pair<char, int32_t>> children;  // Few: searched in order.
    int32_t token = -1;                              // Index into tokens_.
  };

  int32_t Child(int32_t node, char byte) const;
  // Longest token that begins at `at`; control ones must end by `trusted_end`. Index or
  // -1.
  int32_t Longest(std::string_view text, size_t at, size_t trusted_end) const;

  std::vector<Node> nodes_;           // [0] is the root.
  std::array<int32_t, 256> first_{};  // The root's child by byte, or -1.
  std::vector<AddedToken> tokens_;
};

}  // namespace renga
