// Ops on rows and pages: arguments and launch shapes of the kernels in rows.cuh.
//
// Legend: as in include/renga/backend.h; hd = head_dim. Activations on their way into a
// product are f16 with a stride of PaddedCols (weight_format.h); what is behind the width
// stays zero. Counts on the device say how many rows or items there are.

#pragma once

#include <stdint.h>

#include "kernels/cuda/launch.h"

namespace renga::cuda {

// The number of a norm's kernel is the longest row that it takes.
inline constexpr KernelId kRmsNorm1024{200};
inline constexpr KernelId kRmsNorm4096{201};
inline constexpr KernelId kRmsNorm16384{202};
inline constexpr KernelId kSwiGlu{203};
inline constexpr KernelId kRopeAppendF16{204};
inline constexpr KernelId kRopeAppendBf16{205};
inline constexpr KernelId kKvClose{206};
inline constexpr KernelId kKvCopy{207};
inline constexpr KernelId kChunkPool{208};

constexpr int32_t kMostNormCols = 16384;

enum class PageElement : uint8_t { kF16, kBf16 };  // Of q, and of f16-form chunks.

// out = f16((x * r) * weight), r = 1 / sqrt(sum(x^2) / n + eps), one block per row.
struct RmsNormArgs {
  const float* x = nullptr;            // [.][n]
  const float* weight = nullptr;       // [n]
  uint16_t* out = nullptr;             // f16 [rows][out_stride]
  const int32_t* source = nullptr;     // [rows]: row i reads row source[i] of x; null: i.
  const int32_t* row_count = nullptr;  // On the device.
  int64_t out_stride = 0;
  int32_t n = 0;  // At most kMostNormCols.
  float eps = 0.0f;
};
KernelLaunch RmsNormLaunch(const RmsNormArgs& args, int32_t most_rows);

// out = f16((g / (1 + exp2(-g log2 e))) * u).
struct SwiGluArgs {
  const float* gate_up = nullptr;  // [rows][2 ffn]: gate, then up.
  uint16_t* out = nullptr;         // f16 [rows][out_stride]
  const int32_t* row_count = nullptr;
  int64_t out_stride = 0;
  int32_t ffn = 0;
};
KernelLaunch SwiGluLaunch(const SwiGluArgs& args, int32_t most_rows);

// The f16 (or bf16) form of a chunk of 64 positions: K of (layer, KV head) at base +
// layer * layer_bytes + kv_head * head_bytes, as [block of 16 positions][hd][16], V
// behind it as [64][hd]. A page of the pool, an open page, or a scratch chunk
// (layer_bytes 0).
struct ChunkForm {
  uint8_t* base = nullptr;
  int64_t layer_bytes = 0;
};

struct RowPlace {
  int32_t position = 0;  // In its sequence.
  int32_t form = 0;      // Index of the chunk that holds it.
};

// q = element(rotate(q) * q_scale); rotated k, and v, rounded, go into the row's place.
// Rotation of a pair: (a cos - b sin, a sin + b cos) as in CpuOps::rope.
struct RopeAppendArgs {
  const float* qkv = nullptr;  // [rows][(heads + 2 kv_heads) * hd]
  uint16_t* q = nullptr;       // element [rows][heads][hd]
  const float* cos = nullptr;  // [context][rope_dims / 2]
  const float* sin = nullptr;
  const RowPlace* places = nullptr;  // [rows]
  const ChunkForm* forms = nullptr;
  const int32_t* row_count = nullptr;
  int64_t head_bytes = 0;  // Of a form: 2 * 64 * hd * 2.
  int32_t layer = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t rope_dims = 0;
  int32_t halves = 0;  // 1: pairs (i, i + rope_dims / 2); 0: (2 i, 2 i + 1).
  float q_scale = 1.0f;
  PageElement element = PageElement::kF16;
};
KernelLaunch RopeAppendLaunch(const RopeAppendArgs& args, int32_t most_rows);

// Closes whole chunks: the int8 page of kernels/kv_page_format.h, with the bits of
// CpuOps::kv_close_int8 for the same f16 form.
struct CloseItem {
  int32_t form = 0;
  int32_t page = 0;
};
struct KvCloseArgs {
  const CloseItem* items = nullptr;
  const int32_t* item_count = nullptr;
  const ChunkForm* forms = nullptr;
  uint8_t* pool = nullptr;  // Of (this layer, KV head 0) in page 0.
  int64_t page_bytes = 0;
  int64_t page_head_bytes = 0;  // Int8PageOf(hd).bytes
  int64_t form_head_bytes = 0;
  int32_t layer = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // A multiple of 16.
};
KernelLaunch KvCloseLaunch(const KvCloseArgs& args, int32_t most_items);

// Copies the first `tokens` positions of chunks in f16 form.
struct CopyItem {
  ChunkForm from;
  ChunkForm to;
  int32_t tokens = 0;
};
struct KvCopyArgs {
  const CopyItem* items = nullptr;
  const int32_t* item_count = nullptr;
  int64_t head_bytes = 0;
  int32_t first_layer = 0;
  int32_t layers = 1;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
};
KernelLaunch KvCopyLaunch(const KvCopyArgs& args, int32_t most_items);

// The mission's chunk operator: softmax inside a chunk of 64, then the mean over the
// chunk's outputs. out[c] = mean over queries i of chunk c of sum over keys j of chunk c
// of softmax_j(q_i . k_j * scale) v_j. A last chunk may be shorter. Not causal.
struct ChunkPoolArgs {
  const uint16_t* q = nullptr;  // f16 [batch * heads][n][hd]
  const uint16_t* k = nullptr;
  const uint16_t* v = nullptr;
  float* out = nullptr;  // [batch * heads][ceil(n / 64)][hd]
  int32_t batch_heads = 0;
  int32_t n = 0;
  int32_t head_dim = 0;  // A multiple of 16, at most 128.
  float scale = 1.0f;
};
KernelLaunch ChunkPoolLaunch(const ChunkPoolArgs& args);

}  // namespace renga::cuda
