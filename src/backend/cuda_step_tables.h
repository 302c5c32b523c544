// CudaStepTables: a checked step (StepTables) as the kernels of kernels/cuda read it: one
// block of bytes with a fixed place for each table, so that a captured graph finds the
// next step's numbers where it found the last one's.
//
// Who attends where: a sequence with few rows gets decode tiles, whose groups of chunks
// are worked on side by side, as long as there is room for their partials; any other gets
// prefill tiles. Which one changes no bit (kernels/cuda/attention.h).
//
// Pure: no device; pointers into device memory are numbers here.
//
// Thread rule: the backend's.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/step_tables.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/rows.h"
#include "renga/backend.h"

namespace renga {

// At the beginning of the block: what the kernels' counters point to.
struct StepCounts {
  int32_t rows = 0;
  int32_t logit_rows = 0;
  int32_t decode_tiles = 0;
  int32_t prefill_tiles = 0;
  int32_t close_items = 0;
  int32_t move_items = 0;
  int32_t decode_groups = 0;  // Of the longest decode tile; no kernel reads it.
  int32_t unused = 0;
};

class CudaStepTables {
 public:
  // Where chunks lie in device memory.
  struct Places {
    uint8_t* pool = nullptr;  // Page 0.
    int64_t page_bytes = 0;
    uint8_t* open = nullptr;  // Open page 0; int8 alone, as is scratch.
    int64_t open_bytes = 0;
    uint8_t* scratch = nullptr;    // Scratch chunk 0, of one layer.
    int64_t form_layer_bytes = 0;  // All KV heads of one layer of a form.
  };

  CudaStepTables(const GraphShape& shape, const BackendLimits& limits,
                 const Places& places, bool open_pages, int32_t partial_slots);

  // Bytes of the block: what to allocate.
  int64_t bytes() const { return end_; }

  // Writes the step into `block` ([bytes()], 16-byte aligned); returns how many of its
  // first bytes mean something.
  int64_t Build(const StepTables& step, std::byte* block);
  // Of the last Build.
  const StepCounts& counts() const { return counts_; }
  // Every sequence has one row, and nothing is in the step that a graph has no place for.
  bool single_rows() const { return single_rows_; }

  // Offsets in the block.
  int64_t tokens() const { return tokens_; }              // int32 [rows]
  int64_t logit_rows() const { return logit_rows_; }      // int32 [logit rows]
  int64_t row_places() const { return row_places_; }      // RowPlace [rows]
  int64_t forms() const { return forms_; }                // ChunkForm
  int64_t decode_tiles() const { return decode_tiles_; }  // QueryTile
  int64_t prefill_tiles() const { return prefill_tiles_; }
  int64_t close_items() const { return close_items_; }  // CloseItem
  int64_t move_items() const { return move_items_; }    // CopyItem
  int64_t pages() const { return pages_; }              // int32

  // Tiles of one row: query heads of a KV head over what a tile holds.
  int32_t tiles_per_row() const { return head_tiles_; }

 private:
  int64_t Reserve(int64_t count, int64_t element_bytes);
  void AddSequence(const StepTables& step, const SequenceRows& sequence,
                   std::byte* block);
  void AddForms(const StepTables& step, const SequenceRows& sequence, std::byte* block);
  void AddTiles(const SequenceRows& sequence, bool decode, int32_t first_form,
                std::byte* block);
  void AddCloses(const StepTables& step, std::byte* block);
  void AddMoves(const StepTables& step, std::byte* block);
  bool TakesDecode(const SequenceRows& sequence);
  cuda::ChunkForm FormOf(const StepTables::OwnChunk& chunk) const;

  const Places where_;
  const bool open_pages_;
  const int32_t partial_slots_;
  const int32_t heads_;       // Query heads of a KV head.
  const int32_t tile_heads_;  // Of these in one tile, at most...
  const int32_t head_tiles_;  // ... so many tiles for all of them.
  int64_t end_ = 0;
  int64_t tokens_ = 0;
  int64_t logit_rows_ = 0;
  int64_t row_places_ = 0;
  int64_t forms_ = 0;
  int64_t decode_tiles_ = 0;
  int64_t prefill_tiles_ = 0;
  int64_t close_items_ = 0;
  int64_t move_items_ = 0;
  int64_t pages_ = 0;

  // Of the Build in progress, and of the last one.
  StepCounts counts_;
  bool single_rows_ = false;
  int32_t form_count_ = 0;
  int32_t page_count_ = 0;
  int32_t slots_used_ = 0;
};

}  // namespace renga
