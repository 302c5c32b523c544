// See workspace.h.

#include "backend/workspace.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "backend/rope_table.h"
#include "base/status_macros.h"

namespace renga {

namespace {

constexpr int64_t kPartialBudgetFloats = int64_t{64} << 20;  // 256 MiB of address space.

Status AllocateFloats(int64_t count, AlignedBuffer& buffer) {
  buffer = AlignedBuffer::Allocate(static_cast<size_t>(std::max<int64_t>(count, 1)) * 4,
                                   MemoryPurpose::kActivations);
  if (buffer.data() != nullptr) return OkStatus();
  return ResourceExhausted("no memory for a buffer of " + std::to_string(count * 4) +
                           " bytes of the step");
}

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

StatusOr<QuantBuffer> QuantBuffer::Allocate(int64_t rows8, int64_t max_cols) {
  const int64_t values = rows8 * RoundUp(max_cols, kBlockValues);
  const int64_t codes = values * kCodePlanes;
  const int64_t scales = values / kBlockValues;
  QuantBuffer buffer;
  RENGA_RETURN_IF_ERROR(AllocateFloats(codes / 4 + 4 * scales, buffer.memory_));
  buffer.rows_.codes = buffer.memory_.As<int8_t>().data();
  buffer.rows_.scales = buffer.memory_.As<float>().data() + codes / 4;
  buffer.rows_.scaled_sums = buffer.rows_.scales + scales;
  buffer.rows_.code_sums = buffer.memory_.As<int32_t>().data() + codes / 4 + 2 * scales;
  buffer.rows_.fine = buffer.memory_.As<uint8_t>().data() + codes + 12 * scales;
  return buffer;
}

StatusOr<Workspace> Workspace::Allocate(const GraphShape& shape,
                                        const BackendLimits& limits, int threads) {
  Workspace workspace;
  RENGA_RETURN_IF_ERROR(workspace.AllocateRows(shape, limits));
  RENGA_RETURN_IF_ERROR(workspace.AllocatePartials(shape, limits));
  RENGA_RETURN_IF_ERROR(workspace.AllocateSampling(shape, limits, threads));
  RENGA_RETURN_IF_ERROR(workspace.MakeRope(shape));
  return workspace;
}

Status Workspace::AllocateOwnChunks(const KvGeometry& geometry, int64_t scratch_chunks,
                                    int64_t own_chunks) {
  // K and V as halves.
  chunk_bytes_ = 4 * int64_t{kPageTokens} * geometry.kv_heads * geometry.head_dim;
  own_chunks_ = own_chunks;
  own_heads_.resize(static_cast<size_t>(geometry.kv_heads * own_chunks));
  return AllocateFloats(scratch_chunks * chunk_bytes_ / 4, chunks_);
}

Status Workspace::AllocateRows(const GraphShape& shape, const BackendLimits& limits) {
  const int64_t rows8 = RoundUp(limits.max_rows, kTileRows);
  const int64_t q_width = int64_t{shape.heads} * shape.head_dim;
  const int64_t kv_width = int64_t{shape.kv_heads} * shape.head_dim;
  RENGA_RETURN_IF_ERROR(AllocateFloats(rows8 * shape.dim, x_));
  RENGA_RETURN_IF_ERROR(AllocateFloats(rows8 * shape.dim, normed_));
  RENGA_RETURN_IF_ERROR(AllocateFloats(rows8 * (q_width + 2 * kv_width), qkv_));
  RENGA_RETURN_IF_ERROR(AllocateFloats(rows8 * q_width, attention_));
  RENGA_RETURN_IF_ERROR(AllocateFloats(rows8 * shape.ffn, act_));
  RENGA_RETURN_IF_ERROR(
      AllocateFloats(int64_t{limits.max_logit_rows} * shape.vocab, logits_));
  const int64_t input_cols = std::max<int64_t>(shape.dim, q_width);
  RENGA_ASSIGN_OR_RETURN(input_codes_, QuantBuffer::Allocate(rows8, input_cols));
  RENGA_ASSIGN_OR_RETURN(act_codes_, QuantBuffer::Allocate(rows8, shape.ffn));
  return OkStatus();
}

Status Workspace::AllocatePartials(const GraphShape& shape, const BackendLimits& limits) {
  const int64_t positions = int64_t{kPageTokens} * kTreeGroup;
  const int64_t groups = (shape.context + positions - 1) / positions;
  partial_head_stride_ = groups * (kPartialHeader + shape.head_dim);
  partial_row_stride_ = shape.heads * partial_head_stride_;
  partial_rows_ =
      std::max<int64_t>(limits.max_sequences, kPartialBudgetFloats / partial_row_stride_);
  partial_rows_ = std::min<int64_t>(partial_rows_, limits.max_rows);
  return AllocateFloats(partial_rows_ * partial_row_stride_, partials_);
}

Status Workspace::AllocateSampling(const GraphShape& shape, const BackendLimits& limits,
                                   int threads) {
  vocab_ = shape.vocab;
  const int64_t bytes = static_cast<int64_t>(SampleScratchBytes(shape.vocab));
  RENGA_RETURN_IF_ERROR(AllocateFloats(threads * bytes / 4, sampling_));
  for (int64_t worker = 0; worker < threads; ++worker) {
    sample_scratch_.push_back(
        MakeSampleScratch(sampling_.data() + worker * bytes, shape.vocab));
  }
  RENGA_RETURN_IF_ERROR(AllocateFloats(int64_t{threads} * shape.vocab, edited_));
  // A row that is drawn from for each choice of its request, and rows of given tokens.
  max_specs_ = int64_t{limits.max_sequences} + limits.max_logit_rows;
  static_assert(sizeof(TopLogprob) == 8);
  return AllocateFloats(max_specs_ * kMaxTopLogprobs * 2, top_);
}

Status Workspace::MakeRope(const GraphShape& shape) {
  rope_pairs_ = shape.rope_dims / 2;
  RENGA_RETURN_IF_ERROR(AllocateFloats(int64_t{shape.context} * shape.rope_dims, rope_));
  const size_t pairs = static_cast<size_t>(rope_pairs_);
  for (int64_t position = 0; position < shape.context; ++position) {
    const std::span<float> row =
        rope_.As<float>().subspan(static_cast<size_t>(position) * 2 * pairs, 2 * pairs);
    RopeAngles(shape, position, row.first(pairs), row.last(pairs));
  }
  return OkStatus();
}

}  // namespace renga
