// The steps of the CPU backend that write and read KV pages. See cpu_backend_impl.h.
//
// int8 pages, in each layer: rows are appended to their own chunk's f16 form (the open
// page, or a scratch chunk of the step); chunks that are whole then are closed into their
// pages; attention reads a row's own chunk in f16 and every earlier one from its page;
// last, the open page takes over the chunk that a slice ended in. So what a query reads
// is a function of its position alone, however a prompt is sliced.

#include "backend/cpu_backend_impl.h"
#include "base/status_macros.h"

namespace renga {

uint8_t* CpuBackend::OwnHead(const StepTables::OwnChunk& chunk, int32_t layer,
                             int32_t kv_head) {
  if (chunk.scratch < 0) return pages_->OpenHead(chunk.open_page, layer, kv_head);
  return workspace_.scratch_chunk(chunk.scratch) + kv_head * pages_->OpenHeadBytes();
}

uint8_t* CpuBackend::PageHead(PageId page, int32_t layer, int32_t kv_head) {
  return pages_->Base(layer, kv_head) + page * pages_->page_bytes();
}

void CpuBackend::AppendRow(int32_t layer, int64_t row, const float* k, const float* v) {
  const int64_t position = step_->position_of(row);
  const bool open = pages_->has_open_pages();
  const size_t own = open ? static_cast<size_t>(step_->own_chunk_of(row)) : 0;
  const PageId page =
      step_->sequence_of(row).pages[static_cast<size_t>(position / kPageTokens)];
  const auto append =
      pages_->geometry().dtype == KvDtype::kF32 ? ops_.kv_append_f32 : ops_.kv_append_f16;
  for (int32_t head = 0; head < shape_.kv_heads; ++head) {
    append({.k = k + int64_t{head} * shape_.head_dim,
            .v = v + int64_t{head} * shape_.head_dim,
            .page = open ? OwnHead(step_->own_chunks()[own], layer, head)
                         : PageHead(page, layer, head),
            .head_dim = shape_.head_dim,
            .slot = static_cast<int32_t>(position % kPageTokens)});
  }
}

template <class Function>
void CpuBackend::ForChunkHeads(const std::vector<int32_t>& chunks,
                               const Function& function) {
  if (chunks.empty()) return;
  pool_.Run(static_cast<int64_t>(chunks.size()) * shape_.kv_heads,
            [&](int64_t piece, int) {
              const size_t index = static_cast<size_t>(piece / shape_.kv_heads);
              function(step_->own_chunks()[static_cast<size_t>(chunks[index])],
                       static_cast<int32_t>(piece % shape_.kv_heads));
            });
}

void CpuBackend::CloseChunks(int32_t layer) {
  ForChunkHeads(step_->whole_chunks(),
                [&](const StepTables::OwnChunk& chunk, int32_t head) {
                  ops_.kv_close_int8({.open = OwnHead(chunk, layer, head),
                                      .page = PageHead(chunk.page, layer, head),
                                      .head_dim = shape_.head_dim});
                });
}

void CpuBackend::MoveChunks(int32_t layer) {
  ForChunkHeads(step_->moved_chunks(),
                [&](const StepTables::OwnChunk& chunk, int32_t head) {
                  CopyHeadPositions(OwnHead(chunk, layer, head),
                                    pages_->OpenHead(chunk.open_page, layer, head),
                                    shape_.head_dim, sizeof(uint16_t), chunk.tokens);
                });
}

void CpuBackend::PointToOwnChunks(int32_t layer) {
  const std::vector<StepTables::OwnChunk>& chunks = step_->own_chunks();
  for (int32_t head = 0; head < shape_.kv_heads; ++head) {
    const std::span<const uint8_t*> heads = workspace_.own_heads(head);
    for (size_t i = 0; i < chunks.size(); ++i) heads[i] = OwnHead(chunks[i], layer, head);
  }
}

Status CpuBackend::Attend(int32_t layer) {
  RENGA_RETURN_IF_ERROR(CheckLayer(layer));
  PointToOwnChunks(layer);
  const std::vector<AttendItem>& items = step_->items();
  pool_.Run(static_cast<int64_t>(items.size()), [&](int64_t item, int) {
    AttendOne(layer, items[static_cast<size_t>(item)]);
  });
  const std::vector<StepTables::Merge>& merges = step_->merges();
  pool_.Run(static_cast<int64_t>(merges.size()),
            [&](int64_t merge, int) { MergeOne(merges[static_cast<size_t>(merge)]); });
  MoveChunks(layer);
  return OkStatus();
}

void CpuBackend::AttendOne(int32_t layer, const AttendItem& item) {
  const int32_t heads = shape_.heads / shape_.kv_heads;
  const int64_t offset = int64_t{item.kv_head} * heads * shape_.head_dim;
  const int64_t position = step_->position_of(item.first_row);
  AttendArgs args{
      .q = workspace_.qkv().data() + item.first_row * qkv_width() + offset,
      .q_stride = qkv_width(),
      .out = workspace_.attention().data() + item.first_row * q_width() + offset,
      .out_stride = q_width(),
      .rows = item.rows,
      .heads = heads,
      .head_dim = shape_.head_dim,
      .first_position = position,
      .pool = pages_->Base(layer, item.kv_head),
      .page_stride = pages_->page_bytes(),
      .pages = step_->sequence_of(item.first_row).pages.data(),
      .first_group = item.first_group,
      .groups = item.groups,
      .partials = workspace_.partials().data() +
                  int64_t{item.kv_head} * heads * workspace_.partial_head_stride(),
      .partial_rows = step_->partial_rows() + item.first_row,
      .partial_row_stride = workspace_.partial_row_stride(),
      .partial_head_stride = workspace_.partial_head_stride()};
  switch (pages_->geometry().dtype) {
    case KvDtype::kF32:
      return ops_.attend_f32(args);
    case KvDtype::kInt8:
      args.own =
          workspace_.own_heads(item.kv_head).data() + step_->own_chunk_of(item.first_row);
      args.first_own_chunk = position / kPageTokens;
      return ops_.attend_int8(args);
    case KvDtype::kF16:
    case KvDtype::kBf16:  // No pool of it can be made.
      return ops_.attend_f16(args);
  }
}

void CpuBackend::MergeOne(const StepTables::Merge& merge) {
  const int32_t heads = shape_.heads / shape_.kv_heads;
  const int64_t slot = step_->partial_rows()[merge.row];
  for (int64_t head = int64_t{merge.kv_head} * heads;
       head < (int64_t{merge.kv_head} + 1) * heads; ++head) {
    const float* partials = workspace_.partials().data() +
                            slot * workspace_.partial_row_stride() +
                            head * workspace_.partial_head_stride();
    float* out =
        workspace_.attention().data() + merge.row * q_width() + head * shape_.head_dim;
    ops_.merge_partials(partials, merge.groups, shape_.head_dim, out);
  }
}

}  // namespace renga
