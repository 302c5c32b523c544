#include "model/chunk_plan.h"

#include <algorithm>
#include <tuple>

namespace renga {
namespace {

constexpr int32_t kGroupPositions = kPageTokens * kTreeGroup;

int64_t Work(const AttendItem& item) { return int64_t{item.rows} * item.groups; }

// Heaviest first. The rest makes the orders total: equal batches, equal plans.
bool HeavierItem(const AttendItem& a, const AttendItem& b) {
  if (Work(a) != Work(b)) return Work(a) > Work(b);
  return std::tie(a.sequence, a.first_row, a.kv_head, a.first_group) <
         std::tie(b.sequence, b.first_row, b.kv_head, b.first_group);
}

template <class Block>
bool HeavierBlock(const Block& a, const Block& b) {
  if (a.work() != b.work()) return a.work() > b.work();
  return a.first_row < b.first_row;
}

}  // namespace

int32_t VisibleGroups(int32_t position) { return position / kGroupPositions + 1; }

ChunkPlan::ChunkPlan(int32_t kv_heads, const BackendLimits& limits)
    : kv_heads_(kv_heads), most_cut_rows_(limits.max_sequences) {
  const size_t most_blocks = limits.max_rows / kPlanRows + limits.max_sequences + 1;
  blocks_.reserve(most_blocks);
  // The pieces of a block of work w number at most 1 + 2 w / most_work.
  items_.reserve(most_blocks * kv_heads + 2 * kPlanPieces);
}

std::span<const AttendItem> ChunkPlan::Build(std::span<const SequenceRows> sequences) {
  CutIntoBlocks(sequences);
  std::sort(blocks_.begin(), blocks_.end(), HeavierBlock<Block>);
  int64_t work = 0;
  for (const Block& block : blocks_) work += block.work() * kv_heads_;
  const int64_t most_work = std::max(work / kPlanPieces, kPlanLeastWork);
  int32_t cut_rows = 0;
  items_.clear();
  for (const Block& block : blocks_) {
    int32_t piece = block.groups;
    if (block.work() > most_work && block.rows <= most_cut_rows_ - cut_rows) {
      piece = static_cast<int32_t>(std::max<int64_t>(1, most_work / block.rows));
      cut_rows += block.rows;
    }
    AddItems(block, piece);
  }
  std::sort(items_.begin(), items_.end(), HeavierItem);
  return items_;
}

void ChunkPlan::CutIntoBlocks(std::span<const SequenceRows> sequences) {
  blocks_.clear();
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceRows& sequence = sequences[s];
    for (int32_t row = 0; row < sequence.rows; row += kPlanRows) {
      const int32_t rows = std::min(kPlanRows, sequence.rows - row);
      blocks_.push_back(
          {.sequence = static_cast<int32_t>(s),
           .first_row = sequence.first_row + row,
           .rows = rows,
           .groups = VisibleGroups(sequence.first_position + row + rows - 1)});
    }
  }
}

void ChunkPlan::AddItems(const Block& block, int32_t piece) {
  for (int32_t kv_head = 0; kv_head < kv_heads_; ++kv_head) {
    for (int32_t group = 0; group < block.groups; group += piece) {
      items_.push_back({.sequence = block.sequence,
                        .kv_head = kv_head,
                        .first_row = block.first_row,
                        .rows = block.rows,
                        .first_group = group,
                        .groups = std::min(piece, block.groups - group)});
    }
  }
}

}  // namespace renga
