// StepTables: a checked step. Turns the batch and the attention plan, whose numbers are
// not trusted, into tables that the kernels can follow without a look at bounds.
//
// Checked: token ids, the partition of the rows into sequences, positions, page ids,
// logit rows, and that the plan covers every (row, KV head, tree group) exactly once.
//
// With open pages the tables also say where the chunks lie that the step writes, its own
// chunks: a sequence's first one in its open page, the later ones of a slice in scratch
// chunks of the step. There are at most max_rows / 64 + max_sequences of those, as every
// sequence crosses at most (rows + 62) / 64 borders.
//
// Thread rule: the backend's.

#pragma once

#include <cstdint>
#include <vector>

#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

class StepTables {
 public:
  struct Limits {
    GraphShape shape;
    BackendLimits backend;
    int64_t pages = 0;         // Of the pool.
    int64_t partial_rows = 0;  // Rows of a step that may be split over items.
    int threads = 1;
    bool open_pages = false;
  };

  // One chunk that the step writes to.
  struct OwnChunk {
    PageId page = -1;       // Where its int8 form belongs.
    PageId open_page = -1;  // Of its sequence.
    int32_t scratch = -1;   // The scratch chunk that it lies in; -1: in the open page.
    int32_t tokens = 0;     // Positions that it holds after the step; 64: it is whole.
  };

  // One (row, KV head) whose partials must be folded after the items.
  struct Merge {
    int32_t row = 0;
    int32_t kv_head = 0;
    int64_t groups = 0;
  };

  explicit StepTables(const Limits& limits);

  // On an error the tables hold no step.
  Status Build(const StepBatch& batch, const AttendPlan& plan);

  int64_t rows() const { return static_cast<int64_t>(batch_.tokens.size()); }
  const StepBatch& batch() const { return batch_; }
  const SequenceRows& sequence_of(int64_t row) const {
    return batch_.sequences[static_cast<size_t>(row_sequence_[static_cast<size_t>(row)])];
  }
  int64_t position_of(int64_t row) const {
    return row_position_[static_cast<size_t>(row)];
  }
  // In the order of the thread pool's ranges: each worker begins with heavy items.
  const std::vector<AttendItem>& items() const { return items_; }
  const std::vector<Merge>& merges() const { return merges_; }
  // [rows]; index of a split row among the partials, -1 for a row that is not split.
  const int32_t* partial_rows() const { return partial_row_.data(); }

  // Sequence by sequence, chunk by chunk; empty without open pages.
  const std::vector<OwnChunk>& own_chunks() const { return own_chunks_; }
  // Of these, the indices of those that become whole, and of those that must move from
  // scratch to the open page once the layer has attended.
  const std::vector<int32_t>& whole_chunks() const { return whole_chunks_; }
  const std::vector<int32_t>& moved_chunks() const { return moved_chunks_; }
  // Index of the own chunk of a row; the later ones of its sequence follow.
  int64_t own_chunk_of(int64_t row) const {
    const size_t s = static_cast<size_t>(row_sequence_[static_cast<size_t>(row)]);
    return first_own_chunk_[s] + position_of(row) / kPageTokens -
           batch_.sequences[s].first_position / kPageTokens;
  }

  // Upper bounds of a step's numbers of scratch and own chunks.
  static int64_t MaxScratchChunks(const BackendLimits& limits) {
    return limits.max_rows / kPageTokens + int64_t{limits.max_sequences};
  }
  static int64_t MaxOwnChunks(const BackendLimits& limits) {
    return MaxScratchChunks(limits) + limits.max_sequences;
  }

 private:
  Status CheckSequences(const StepBatch& batch);
  Status CheckSequence(const SequenceRows& sequence, int64_t expected_first_row) const;
  Status CheckLogitRows(const StepBatch& batch) const;
  Status CheckPlan(const StepBatch& batch, const AttendPlan& plan);
  Status CoverItem(const StepBatch& batch, const AttendItem& item);
  Status CoverRow(const AttendItem& item, int64_t row);
  Status CheckCover(int64_t rows) const;
  void OrderItems(const AttendPlan& plan);
  void ListOwnChunks(const StepBatch& batch);
  int64_t GroupsOf(int64_t row) const {
    return position_of(row) / (int64_t{kPageTokens} * kTreeGroup) + 1;
  }

  const Limits limits_;
  int64_t cover_words_ = 0;  // Per (row, KV head).
  StepBatch batch_;
  std::vector<int32_t> row_sequence_;  // [max_rows]
  std::vector<int32_t> row_position_;  // [max_rows]
  std::vector<int32_t> partial_row_;   // [max_rows]
  std::vector<uint64_t> cover_;        // [max_rows][kv_heads][cover_words]
  std::vector<AttendItem> items_;
  std::vector<Merge> merges_;
  std::vector<OwnChunk> own_chunks_;
  std::vector<int32_t> whole_chunks_;
  std::vector<int32_t> moved_chunks_;
  std::vector<int32_t> first_own_chunk_;  // [sequences]
  int32_t split_rows_ = 0;
};

}  // namespace renga
