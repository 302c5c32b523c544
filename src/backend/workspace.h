// Workspace: every buffer of a step, allocated once at start. Memory is touched when it
// is first written, so a generous limit costs address space only.
//
// Legend: as in include/renga/backend.h; rows8 = max_rows rounded up to tiles of 8.

#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/ops.h"
#include "kernels/sampling.h"
#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

// Owns what a QuantRows points to.
class QuantBuffer {
 public:
  static StatusOr<QuantBuffer> Allocate(int64_t rows8, int64_t max_cols);
  const QuantRows& rows() const { return rows_; }

 private:
  QuantRows rows_;
  AlignedBuffer memory_;
};

class Workspace {
 public:
  static StatusOr<Workspace> Allocate(const GraphShape& shape,
                                      const BackendLimits& limits, int threads);
  // For pages with open pages: room for so many chunks in f16 form, of one layer, and for
  // pointers to so many.
  Status AllocateOwnChunks(const KvGeometry& geometry, int64_t scratch_chunks,
                           int64_t own_chunks);

  std::span<float> x() { return x_.As<float>(); }            // [max_rows, dim]
  std::span<float> normed() { return normed_.As<float>(); }  // [max_rows, dim]
  std::span<float> qkv() { return qkv_.As<float>(); }        // [max_rows, qkv_width]
  std::span<float> attention() { return attention_.As<float>(); }  // [max_rows, q_width]
  std::span<float> act() { return act_.As<float>(); }              // [max_rows, ffn]
  std::span<float> logits() { return logits_.As<float>(); }  // [max_logit_rows, vocab]
  std::span<float> partials() { return partials_.As<float>(); }
  const QuantRows& input_codes() const { return input_codes_.rows(); }
  const QuantRows& act_codes() const { return act_codes_.rows(); }
  const SampleScratch& sample_scratch(int worker) const {
    return sample_scratch_[static_cast<size_t>(worker)];
  }

  // Specs that one step may sample, and where each may leave its best tokens.
  int64_t max_specs() const { return max_specs_; }
  std::span<TopLogprob> top(int64_t spec) {
    return top_.As<TopLogprob>().subspan(static_cast<size_t>(spec) * kMaxTopLogprobs,
                                         kMaxTopLogprobs);
  }
  // The logits of one spec with its bans, biases and penalties, [vocab].
  std::span<float> edited_logits(int worker) {
    return edited_.As<float>().subspan(static_cast<size_t>(worker * vocab_),
                                       static_cast<size_t>(vocab_));
  }

  // partials: [partial_rows][heads][max_groups][2 + head_dim]
  int64_t partial_rows() const { return partial_rows_; }
  int64_t partial_head_stride() const { return partial_head_stride_; }
  int64_t partial_row_stride() const { return partial_row_stride_; }

  // [kv_heads][K then V of an open page]
  uint8_t* scratch_chunk(int64_t chunk) {
    return chunks_.As<uint8_t>().data() + chunk * chunk_bytes_;
  }
  // Where one KV head of the step's own chunks lies, in the layer in progress.
  std::span<const uint8_t*> own_heads(int64_t kv_head) {
    return std::span(own_heads_)
        .subspan(static_cast<size_t>(kv_head * own_chunks_),
                 static_cast<size_t>(own_chunks_));
  }

  // cos and sin of one position, [rope_dims / 2] each.
  const float* rope_cos(int64_t position) const {
    return rope_.As<float>().data() + position * 2 * rope_pairs_;
  }
  const float* rope_sin(int64_t position) const {
    return rope_cos(position) + rope_pairs_;
  }

 private:
  Status AllocateRows(const GraphShape& shape, const BackendLimits& limits);
  Status AllocatePartials(const GraphShape& shape, const BackendLimits& limits);
  Status AllocateSampling(const GraphShape& shape, const BackendLimits& limits,
                          int threads);
  Status MakeRope(const GraphShape& shape);

  AlignedBuffer x_, normed_, qkv_, attention_, act_, logits_, partials_;
  AlignedBuffer rope_;                         // [context][cos | sin][rope_dims / 2]
  AlignedBuffer sampling_;                     // [threads] scratches.
  AlignedBuffer edited_;                       // [threads, vocab]
  AlignedBuffer top_;                          // [max_specs, kMaxTopLogprobs]
  QuantBuffer input_codes_;                    // Up to max(dim, q_width) cols.
  QuantBuffer act_codes_;                      // ffn cols.
  AlignedBuffer chunks_;                       // [scratch chunks][chunk_bytes]
  std::vector<const uint8_t*> own_heads_;      // [kv_heads][own_chunks]
  std::vector<SampleScratch> sample_scratch_;  // [threads]
  int64_t vocab_ = 0;
  int64_t max_specs_ = 0;
  int64_t partial_rows_ = 0;
  int64_t partial_head_stride_ = 0;
  int64_t partial_row_stride_ = 0;
  int64_t rope_pairs_ = 0;
  int64_t chunk_bytes_ = 0;
  int64_t own_chunks_ = 0;
};

}  // namespace renga
