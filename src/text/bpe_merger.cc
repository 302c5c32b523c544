#include "text/bpe_merger.h"

#include <algorithm>

namespace renga {
namespace {

// Orders the heap: the top is the lowest rank, then the leftmost position.
constexpr auto kLater = [](const auto& a, const auto& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
};

}  // namespace

void BpeMerger::Offer(Scratch& scratch, int32_t position) const {
  if (position < 0) return;
  const Scratch::Symbol& left = scratch.symbols_[static_cast<size_t>(position)];
  if (left.next < 0) return;
  const TokenId right = scratch.symbols_[static_cast<size_t>(left.next)].id;
  if (const Merge* merge = Find(left.id, right)) {
    scratch.heap_.push_back({merge->rank, position, merge->merged});
    std::push_heap(scratch.heap_.begin(), scratch.heap_.end(), kLater);
  }
}

void BpeMerger::Apply(Scratch& scratch, const Scratch::Candidate& candidate) const {
  auto& symbols = scratch.symbols_;
  Scratch::Symbol& left = symbols[static_cast<size_t>(candidate.position)];
  if (left.id < 0 || left.next < 0) return;
  Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
  // Stale: one of the two has merged since, and they no longer make this token.
  const Merge* merge = Find(left.id, right.id);
  if (merge == nullptr || merge->merged != candidate.merged) return;
  left.id = candidate.merged;
  left.next = right.next;
  right.id = -1;
  if (left.next >= 0)
    symbols[static_cast<size_t>(left.next)].previous = candidate.position;
  Offer(scratch, left.previous);
  Offer(scratch, candidate.position);
}

int64_t BpeMerger::Append(std::string_view piece, Scratch& scratch,
                          std::vector<TokenId>& ids) const {
  auto& symbols = scratch.symbols_;
  symbols.clear();
  scratch.heap_.clear();
  for (const char byte : piece) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id < 0) continue;
    const auto position = static_cast<int32_t>(symbols.size());
    if (position > 0) symbols.back().next = position;
    symbols.push_back({id, position - 1, -1});
  }
  for (size_t i = 0; i + 1 < symbols.size(); ++i) Offer(scratch, static_cast<int32_t>(i));
  int64_t operations = 0;
  while (!scratch.heap_.empty()) {
    std::pop_heap(scratch.heap_.begin(), scratch.heap_.end(), kLater);
    const Scratch::Candidate candidate = scratch.heap_.back();
    scratch.heap_.pop_back();
    ++operations;  // Every candidate that was pushed is popped once.
    Apply(scratch, candidate);
  }
  for (int32_t at = symbols.empty() ? -1 : 0; at >= 0;) {
    const Scratch::Symbol& symbol = symbols[static_cast<size_t>(at)];
    ids.push_back(symbol.id);
    at = symbol.next;
  }
  return operations;
}

}  // namespace renga
