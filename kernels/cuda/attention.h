// Attention over pages: arguments and launch shapes of the kernels in attention.cuh.
//
// The merge tree of src/README.md: a chunk of 64 keys has its own maximum; chunks are
// folded left to right in groups of 4, groups left to right. Both kernels call one inner
// routine for (16 query rows, one chunk) and one fold, so that a query has the same bits
// from either, in any tile, batch and slice:
//   decode   one block per (group, KV head, tile of at most 16 packed rows); a warp takes
//            a chunk; the group's partial goes to memory, MergeGroups folds the groups
//   prefill  one block per (KV head, tile of at most 64 packed rows), all groups in turn
// Packed rows: the query heads of one KV head, token by token: row = token * heads +
// head.
//
// f16 and bf16 pages: K as [block of 16 positions][hd][16], V as [64][hd]. int8 pages:
// kernels/kv_page_format.h; a query reads its own chunk, the last one that it sees, in
// its f16 form and all earlier ones from their pages. A tile never crosses a chunk.
//
// Numerics: q and p are rounded to the page's element, sums are f32; a score is in base 2
// (q is scaled by log2(e) / sqrt(hd)). int8, per chunk:
//   score = f16(q * step) . (code - 128) + (q . min + 128 (q . step))
//   o     = z (f16(p * scale / z) . code), z = 2^exponent of the chunk's largest |scale|
// The products with f16(x) are exact, their sums f32. Codes stand around 128, so that the
// rounding of q * step weighs less; z keeps p * scale away from f16's subnormal numbers.
//
// Of a chunk in f16 form, positions behind the tile's last one are not read, but for keys
// that share 16 bytes (8 positions of a channel) with one before it: those may be any
// numbers, their scores are masked.
//
// Where modes that do not read every page have their place: `pages` holds a list per
// (tile, KV head) in order of positions instead of all pages of the sequence, and a
// group's number comes from the list; what stands for the pages that are left out is one
// more group in MergeGroups, behind the others.

#pragma once

#include <stdint.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"

namespace renga::cuda {

enum class PageKind : uint8_t { kF16, kBf16, kInt8 };

// Some rows of one sequence, all in one chunk, with some heads of each KV head.
struct alignas(16) QueryTile {
  int32_t first_row = 0;  // Of the step.
  int32_t rows = 0;
  int32_t first_position = 0;  // Of first_row.
  int32_t first_page = 0;     // Where the sequence's pages begin in AttentionArgs::pages.
  int32_t first_partial = 0;  // Decode: slot of its group 0; the others follow.
  int32_t own_form = 0;       // int8: index of the chunk's form.
  int32_t first_head = 0;     // Of the query heads of a KV head: 0 if they fit a tile.
  int32_t heads = 0;
};

constexpr int32_t kDecodeTileRows = 16;  // Packed: rows * heads of a tile, at most.
constexpr int32_t kPrefillTileRows = 64;
constexpr int32_t kGroupPositions = 256;

// Of one partial: `m, l` [16][2], then `o`, not divided, [16][hd].
constexpr int64_t PartialFloats(int64_t head_dim) {
  return kDecodeTileRows * (2 + head_dim);
}

struct AttentionArgs {
  const uint16_t* q = nullptr;    // element [rows][heads][hd]
  uint16_t* out = nullptr;        // f16 [rows][out_stride]; head h at h * hd
  const uint8_t* pool = nullptr;  // Of (this layer, KV head 0) in page 0.
  const int32_t* pages = nullptr;
  const ChunkForm* forms = nullptr;  // int8 alone.
  const QueryTile* tiles = nullptr;
  const int32_t* tile_count = nullptr;  // On the device.
  // [slot][kv_head][PartialFloats]. Decode and MergeGroups. A tile with one group alone
  // has no use for its slot.
  float* partials = nullptr;
  int64_t out_stride = 0;  // A multiple of 4.
  int64_t page_bytes = 0;
  int64_t head_bytes = 0;       // From KV head to KV head inside a page.
  int64_t form_head_bytes = 0;  // The same inside a form.
  int32_t layer = 0;            // For forms.
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
};

// Whether there are kernels for such heads: 16, 32, 64, 96 and 128.
bool AttentionServes(PageKind kind, int32_t head_dim);

// Decode writes `out` of tiles with one group, MergeGroups that of all others.
KernelLaunch DecodeAttentionLaunch(PageKind kind, const AttentionArgs& args,
                                   int32_t most_tiles, int32_t most_groups);
KernelLaunch MergeGroupsLaunch(const AttentionArgs& args, int32_t most_tiles);
KernelLaunch PrefillAttentionLaunch(PageKind kind, const AttentionArgs& args,
                                    int32_t most_tiles);

// ---- What launch shapes and kernels share.

constexpr int32_t kAttentionThreads = 128;

// Slices of 32 * hd bytes that a warp of the decode kernel has in flight: as many as
// leave two blocks on an SM with 100 KiB.
constexpr int32_t DecodeSlots(PageKind kind, int32_t head_dim) {
  const int32_t slices = kind == PageKind::kInt8 ? 4 : 8;
  const int32_t room = 48 * 1024 / (4 * 32 * head_dim);
  return room < slices ? room : slices;
}
// The warps' slots, then m and l of each warp's rows.
constexpr int32_t DecodeSharedBytes(PageKind kind, int32_t head_dim) {
  return 4 * DecodeSlots(kind, head_dim) * 32 * head_dim + 4 * kDecodeTileRows * 8;
}
// Two chunks, then the rows' totals.
constexpr int32_t PrefillSharedBytes(int32_t head_dim) {
  return 2 * 256 * head_dim + kPrefillTileRows * 4 * head_dim;
}

constexpr KernelId DecodeAttentionId(PageKind kind, int32_t head_dim) {
  return KernelId{300 + 10 * static_cast<int32_t>(kind) + head_dim / 16};
}
constexpr KernelId PrefillAttentionId(PageKind kind, int32_t head_dim) {
  return KernelId{340 + 10 * static_cast<int32_t>(kind) + head_dim / 16};
}
inline constexpr KernelId kMergeGroups{380};

}  // namespace renga::cuda
