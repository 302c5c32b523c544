// The merge loop of byte-pair encoding: one piece of text in, token ids out.
//
// The pair of the lowest rank merges first, of equal ranks the leftmost. Candidates wait
// in a heap over a linked list, so a piece of n bytes costs O(n log n) whatever it holds.
//
// Thread safety: immutable after construction; `Scratch` belongs to one caller.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "renga/types.h"

namespace renga {

class BpeMerger {
 public:
  struct Merge {
    int32_t rank = 0;
    TokenId merged = -1;
  };

  // Working memory, kept between pieces to save allocations.
  class Scratch {
    friend class BpeMerger;
    struct Symbol {
      TokenId id = -1;  // -1: merged into the one before.
      int32_t previous = -1;
      int32_t next = -1;
    };
    struct Candidate {
      int32_t rank = 0;
      int32_t position = 0;  // Of the left symbol.
      TokenId merged = -1;
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
  };

  BpeMerger() { byte_ids_.fill(-1); }

  // Bytes without a token vanish from the text, as in the reference (real vocabularies
  // lack bytes that no assigned character needs).
  void SetByte(uint8_t byte, TokenId id) { byte_ids_[byte] = id; }
  // False if the pair already has a merge; the first one (lower rank) stays.
  bool AddMerge(TokenId left, TokenId right, const Merge& merge) {
    return merges_.emplace(Key(left, right), merge).second;
  }

  // Appends the ids of `piece`; returns the number of heap operations it took.
  // REQUIRES: piece.size() < 2^31.
  int64_t Append(std::string_view piece, Scratch& scratch,
                 std::vector<TokenId>& ids) const;

 private:
  static uint64_t Key(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  const Merge* Find(TokenId left, TokenId right) const {
    const auto found = merges_.find(Key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }
  void Offer(Scratch& scratch, int32_t position) const;
  void Apply(Scratch& scratch, const Scratch::Candidate& candidate) const;

  std::array<TokenId, 256> byte_ids_{};
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace renga
