// See cuda_step_tables.h.

#include "backend/cuda_step_tables.h"

#include <algorithm>
#include <cstring>

namespace renga {

namespace {

using cuda::ChunkForm;
using cuda::CloseItem;
using cuda::CopyItem;
using cuda::kDecodeTileRows;
using cuda::kPrefillTileRows;
using cuda::QueryTile;
using cuda::RowPlace;

// Packed rows of a sequence up to which it gets decode tiles: each of them reads all
// pages once more.
constexpr int32_t kDecodeRows = 2 * kDecodeTileRows;

template <class T>
void Put(std::byte* block, int64_t offset, int64_t index, const T& value) {
  std::memcpy(block + offset + index * static_cast<int64_t>(sizeof(T)), &value,
              sizeof(T));
}

int32_t GroupsOf(int32_t last_position) {
  return last_position / cuda::kGroupPositions + 1;
}

}  // namespace

CudaStepTables::CudaStepTables(const GraphShape& shape, const BackendLimits& limits,
                               const Places& places, bool open_pages,
                               int32_t partial_slots)
    : where_(places),
      open_pages_(open_pages),
      partial_slots_(partial_slots),
      heads_(shape.heads / shape.kv_heads),
      tile_heads_(std::min(heads_, kDecodeTileRows)),
      head_tiles_(cuda::DivideUp(heads_, tile_heads_)) {
  const int64_t chunks = StepTables::MaxOwnChunks(limits);
  const int64_t tiles = int64_t{limits.max_rows} * head_tiles_;
  Reserve(1, sizeof(StepCounts));
  tokens_ = Reserve(limits.max_rows, sizeof(int32_t));
  logit_rows_ = Reserve(limits.max_logit_rows, sizeof(int32_t));
  row_places_ = Reserve(limits.max_rows, sizeof(RowPlace));
  forms_ = Reserve(chunks, sizeof(ChunkForm));
  decode_tiles_ = Reserve(tiles, sizeof(QueryTile));
  prefill_tiles_ = Reserve(tiles, sizeof(QueryTile));
  if (open_pages) {
    close_items_ = Reserve(chunks, sizeof(CloseItem));
    move_items_ = Reserve(chunks, sizeof(CopyItem));
  }
  // Last, since most steps use few of them.
  pages_ = Reserve(limits.max_sequences * PagesFor(shape.context), sizeof(int32_t));
}

int64_t CudaStepTables::Reserve(int64_t count, int64_t element_bytes) {
  const int64_t at = end_;
  end_ = (at + count * element_bytes + 15) / 16 * 16;
  return at;
}

int64_t CudaStepTables::Build(const StepTables& step, std::byte* block) {
  const StepBatch& batch = step.batch();
  counts_ = {.rows = static_cast<int32_t>(batch.tokens.size()),
             .logit_rows = static_cast<int32_t>(batch.logit_rows.size())};
  form_count_ = page_count_ = slots_used_ = 0;
  single_rows_ = true;
  std::copy(batch.tokens.begin(), batch.tokens.end(),
            reinterpret_cast<int32_t*>(block + tokens_));
  std::copy(batch.logit_rows.begin(), batch.logit_rows.end(),
            reinterpret_cast<int32_t*>(block + logit_rows_));
  for (const SequenceRows& sequence : batch.sequences) AddSequence(step, sequence, block);
  if (open_pages_) {
    AddCloses(step, block);
    AddMoves(step, block);
  }
  single_rows_ = single_rows_ && counts_.prefill_tiles == 0 && counts_.move_items == 0;
  Put(block, 0, 0, counts_);
  return pages_ + page_count_ * static_cast<int64_t>(sizeof(int32_t));
}

void CudaStepTables::AddSequence(const StepTables& step, const SequenceRows& sequence,
                                 std::byte* block) {
  single_rows_ = single_rows_ && sequence.rows == 1;
  const int32_t first_form = form_count_;
  AddForms(step, sequence, block);
  const int32_t first_chunk = sequence.first_position / kPageTokens;
  for (int32_t i = 0; i < sequence.rows; ++i) {
    const int32_t position = sequence.first_position + i;
    const RowPlace place{.position = position,
                         .form = first_form + position / kPageTokens - first_chunk};
    Put(block, row_places_, sequence.first_row + i, place);
  }
  AddTiles(sequence, TakesDecode(sequence), first_form, block);
  const int64_t pages = PagesFor(int64_t{sequence.first_position} + sequence.rows);
  std::copy_n(sequence.pages.begin(), pages,
              reinterpret_cast<int32_t*>(block + pages_) + page_count_);
  page_count_ += static_cast<int32_t>(pages);
}

// The chunks that the sequence's rows are written to, one after another.
void CudaStepTables::AddForms(const StepTables& step, const SequenceRows& sequence,
                              std::byte* block) {
  const int32_t end = sequence.first_position + sequence.rows;
  for (int32_t chunk = sequence.first_position / kPageTokens; chunk * kPageTokens < end;
       ++chunk) {
    ChunkForm form{.base = where_.pool, .layer_bytes = where_.form_layer_bytes};
    if (open_pages_) {
      // StepTables lists them in the same order.
      form = FormOf(step.own_chunks()[static_cast<size_t>(form_count_)]);
    } else {
      form.base += sequence.pages[static_cast<size_t>(chunk)] * where_.page_bytes;
    }
    Put(block, forms_, form_count_++, form);
  }
}

ChunkForm CudaStepTables::FormOf(const StepTables::OwnChunk& chunk) const {
  if (chunk.scratch >= 0) {
    return {.base = where_.scratch + chunk.scratch * where_.form_layer_bytes,
            .layer_bytes = 0};
  }
  return {.base = where_.open + chunk.open_page * where_.open_bytes,
          .layer_bytes = where_.form_layer_bytes};
}

bool CudaStepTables::TakesDecode(const SequenceRows& sequence) {
  if (sequence.rows > 1 && int64_t{sequence.rows} * heads_ > kDecodeRows) return false;
  // Not more tiles than rows.
  const int32_t groups = GroupsOf(sequence.first_position + sequence.rows - 1);
  const int64_t slots = int64_t{groups} * sequence.rows * head_tiles_;
  return slots_used_ + slots <= partial_slots_;
}

void CudaStepTables::AddTiles(const SequenceRows& sequence, bool decode,
                              int32_t first_form, std::byte* block) {
  const int32_t tokens = (decode ? kDecodeTileRows : kPrefillTileRows) / tile_heads_;
  const int32_t first_chunk = sequence.first_position / kPageTokens;
  int32_t& count = decode ? counts_.decode_tiles : counts_.prefill_tiles;
  int32_t rows = 0;
  for (int32_t done = 0; done < sequence.rows; done += rows) {
    const int32_t position = sequence.first_position + done;
    rows = std::min({tokens, sequence.rows - done, kPageTokens - position % kPageTokens});
    for (int32_t head = 0; head < heads_; head += tile_heads_) {
      QueryTile tile{.first_row = sequence.first_row + done,
                     .rows = rows,
                     .first_position = position,
                     .first_page = page_count_,
                     .own_form = first_form + position / kPageTokens - first_chunk,
                     .first_head = head,
                     .heads = std::min(tile_heads_, heads_ - head)};
      if (decode) {
        const int32_t groups = GroupsOf(position + rows - 1);
        tile.first_partial = slots_used_;
        slots_used_ += groups;
        counts_.decode_groups = std::max(counts_.decode_groups, groups);
      }
      Put(block, decode ? decode_tiles_ : prefill_tiles_, count++, tile);
    }
  }
}

void CudaStepTables::AddCloses(const StepTables& step, std::byte* block) {
  for (const int32_t index : step.whole_chunks()) {
    const StepTables::OwnChunk& chunk = step.own_chunks()[static_cast<size_t>(index)];
    Put(block, close_items_, counts_.close_items++,
        CloseItem{.form = index, .page = chunk.page});
  }
}

void CudaStepTables::AddMoves(const StepTables& step, std::byte* block) {
  for (const int32_t index : step.moved_chunks()) {
    StepTables::OwnChunk chunk = step.own_chunks()[static_cast<size_t>(index)];
    CopyItem item{.from = FormOf(chunk), .to = {}, .tokens = chunk.tokens};
    chunk.scratch = -1;
    item.to = FormOf(chunk);
    Put(block, move_items_, counts_.move_items++, item);
  }
}

}  // namespace renga
