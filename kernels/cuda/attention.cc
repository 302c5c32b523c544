// See attention.h: which kernel serves which heads, and with what shape.
//
// Thread safety: plain functions.

#include "kernels/cuda/attention.h"

namespace renga::cuda {

bool AttentionServes(PageKind kind, int32_t head_dim) {
  switch (kind) {
    case PageKind::kF16:
    case PageKind::kBf16:
    case PageKind::kInt8:
      return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 96 ||
             head_dim == 128;
  }
  return false;
}

KernelLaunch DecodeAttentionLaunch(PageKind kind, const AttentionArgs& args,
                                   int32_t most_tiles, int32_t most_groups) {
  return {DecodeAttentionId(kind, args.head_dim),
          {.grid_x = most_groups,
           .grid_y = args.kv_heads,
           .grid_z = most_tiles,
           .threads = kAttentionThreads,
           .shared_bytes = DecodeSharedBytes(kind, args.head_dim)}};
}

KernelLaunch MergeGroupsLaunch(const AttentionArgs& args, int32_t most_tiles) {
  const int32_t vectors = kDecodeTileRows * args.head_dim / 4;
  return {kMergeGroups,
          {.grid_x = DivideUp(vectors, kAttentionThreads),
           .grid_y = args.kv_heads,
           .grid_z = most_tiles,
           .threads = kAttentionThreads}};
}

// Neighbouring blocks are tiles of one KV head: they share its pages in the L2.
KernelLaunch PrefillAttentionLaunch(PageKind kind, const AttentionArgs& args,
                                    int32_t most_tiles) {
  return {PrefillAttentionId(kind, args.head_dim),
          {.grid_x = most_tiles,
           .grid_y = args.kv_heads,
           .threads = kAttentionThreads,
           .shared_bytes = PrefillSharedBytes(args.head_dim)}};
}

}  // namespace renga::cuda
