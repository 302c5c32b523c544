// ChunkPlan: lengths of sequences -> work list of hierarchical chunked attention.
//
// Pure: a function of the batch's lengths and of the constants below, never of the number
// of threads; which items exist changes no bit of any result, since a kernel takes whole
// groups of the merge tree and partials are folded in order (src/README.md).
//
// Every (row, KV head, group that the row may see) is covered by exactly one item. Rows
// of a sequence go in blocks of at most kPlanRows. A block heavier than 1 / kPlanPieces
// of the whole work is cut into ranges of groups, so that one long context alone still
// feeds all workers. At most BackendLimits::max_sequences rows are cut, heaviest blocks
// first: a backend needs room for the partials of so many rows.
//
// Thread safety: none; one thread builds.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "renga/backend.h"

namespace renga {

// Rows of one item at most: they share each read of a page.
inline constexpr int32_t kPlanRows = 16;
// Independent pieces that a batch is cut into, if its shape allows: a few per worker on
// the machines at hand. More would only add partials to fold.
inline constexpr int32_t kPlanPieces = 32;
// Row x group products below which cutting costs more than it gives.
inline constexpr int64_t kPlanLeastWork = 2;

class ChunkPlan {
 public:
  ChunkPlan(int32_t kv_heads, const BackendLimits& limits);

  // The items, heaviest first; valid until the next Build. No memory is allocated within
  // the limits.
  std::span<const AttendItem> Build(std::span<const SequenceRows> sequences);

 private:
  // Rows of one sequence that are planned together.
  struct Block {
    int32_t sequence = 0;
    int32_t first_row = 0;
    int32_t rows = 0;
    int32_t groups = 0;  // That its last row may see.
    int64_t work() const { return int64_t{rows} * groups; }
  };

  void CutIntoBlocks(std::span<const SequenceRows> sequences);
  // One item per KV head and range of `piece` groups.
  void AddItems(const Block& block, int32_t piece);

  const int32_t kv_heads_;
  const int32_t most_cut_rows_;
  std::vector<Block> blocks_;
  std::vector<AttendItem> items_;
};

// Groups of the merge tree that hold positions [0, position].
int32_t VisibleGroups(int32_t position);

}  // namespace renga
