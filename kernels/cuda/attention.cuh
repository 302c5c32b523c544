// The attention kernels. See attention.h for what they compute, attention_chunk.cuh and
// attention_coded.cuh for one chunk.

#pragma once

#include <stdint.h>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_chunk.cuh"
#include "kernels/cuda/attention_coded.cuh"
#include "kernels/cuda/context.h"
#include "kernels/cuda/words.h"

namespace renga::cuda {

// Of q, and of chunks that are not coded.
template <PageKind kKind>
struct ElementOf {
  using Type = HalfElement;
};
template <>
struct ElementOf<PageKind::kBf16> {
  using Type = BfloatElement;
};

constexpr int kChunkPositions = 64;
constexpr int kGroupChunks = kGroupPositions / kChunkPositions;

template <class Ctx>
RENGA_DEVICE QueryTile LoadTile(Ctx& ctx, const AttentionArgs& args, int index) {
  static_assert(sizeof(QueryTile) == 32);
  const Vec16 a = ctx.Load16(args.tiles + index);
  const Vec16 b = ctx.Load16(&args.tiles[index].first_partial);
  QueryTile tile;
  tile.first_row = static_cast<int32_t>(a.word[0]);
  tile.rows = static_cast<int32_t>(a.word[1]);
  tile.first_position = static_cast<int32_t>(a.word[2]);
  tile.first_page = static_cast<int32_t>(a.word[3]);
  tile.first_partial = static_cast<int32_t>(b.word[0]);
  tile.own_form = static_cast<int32_t>(b.word[1]);
  tile.first_head = static_cast<int32_t>(b.word[2]);
  tile.heads = static_cast<int32_t>(b.word[3]);
  return tile;
}

RENGA_DEVICE int PackedRows(const QueryTile& tile) { return tile.rows * tile.heads; }
RENGA_DEVICE int OwnChunkOf(const QueryTile& tile) {
  return tile.first_position / kChunkPositions;
}
RENGA_DEVICE int GroupsOf(const QueryTile& tile) {
  return OwnChunkOf(tile) / kGroupChunks + 1;
}

// Where packed row `row` of a tile stands in the step: its row and query head.
struct PackedRow {
  int64_t row;
  int64_t head;
};
RENGA_DEVICE PackedRow PackedRowOf(const AttentionArgs& args, const QueryTile& tile,
                                   int kv_head, int row) {
  const int token = row / tile.heads;
  const int group_heads = args.heads / args.kv_heads;
  return {tile.first_row + token,
          kv_head * group_heads + tile.first_head + row - token * tile.heads};
}

// A fragments of packed rows first.. first + 15; rows that the tile lacks are zeros.
template <int kHeadDim, class Ctx>
RENGA_DEVICE void LoadQuery(Ctx& ctx, const AttentionArgs& args, const QueryTile& tile,
                            int first, uint32_t (&q)[kHeadDim / 16][4]) {
  const int t = ctx.lane() & 3;
  RENGA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = first + 8 * half + (ctx.lane() >> 2);
    const bool there = row < PackedRows(tile);
    const PackedRow at = PackedRowOf(args, tile, ctx.block_y(), there ? row : 0);
    const uint16_t* from = args.q + (at.row * args.heads + at.head) * kHeadDim + 4 * t;
    RENGA_UNROLL
    for (int s = 0; s < kHeadDim / 16; ++s) {
      uint64_t four = 0;
      if (there) four = *reinterpret_cast<const uint64_t*>(from + 16 * s);
      q[s][half] = LowWord(four);
      q[s][2 + half] = HighWord(four);
    }
  }
}

RENGA_DEVICE ChunkMask MaskOf(const QueryTile& tile, bool own, int first_row) {
  return {own, tile.first_position % kChunkPositions, tile.heads, first_row};
}

// A chunk of f16 or bf16 of the tile's sequence.
template <PageKind kKind, int kHeadDim>
RENGA_DEVICE PlainSlices<kHeadDim> PlainChunk(const AttentionArgs& args,
                                              const QueryTile& tile, int kv_head,
                                              bool own, int page) {
  PlainSlices<kHeadDim> slices;
  if (kKind == PageKind::kInt8) {
    const ChunkForm form = args.forms[tile.own_form];
    slices.chunk =
        form.base + form.layer_bytes * args.layer + args.form_head_bytes * kv_head;
  } else {
    slices.chunk = args.pool + args.page_bytes * page + args.head_bytes * kv_head;
  }
  slices.visible =
      own ? tile.first_position % kChunkPositions + tile.rows : kChunkPositions;
  return slices;
}

template <int kHeadDim>
RENGA_DEVICE CodedSlices<kHeadDim> CodedChunk(const AttentionArgs& args, int kv_head,
                                              int page) {
  return {args.pool + args.page_bytes * page + args.head_bytes * kv_head};
}

// ---- Decode.

// A block's shared memory: the warps' rings, later their partials (o in rows of hd + 8
// floats, so that 4 rows lie in different banks), then m and l of all partials.
template <PageKind kKind, int kHeadDim>
struct DecodePlace {
  static constexpr int kSlots = DecodeSlots(kKind, kHeadDim);
  static constexpr int kPitch = kHeadDim + 8;
  static constexpr int kRingBytes = kSlots * 32 * kHeadDim;
  static constexpr int kSumsAt = 4 * kRingBytes;
  static_assert(kDecodeTileRows * kPitch * 4 <= kRingBytes);
};

// Attention of the tile over one chunk, which a warp fetches through its ring.
template <PageKind kKind, int kHeadDim, class Ctx>
RENGA_DEVICE void AttendFromPages(Ctx& ctx, const AttentionArgs& args,
                                  const QueryTile& tile, int chunk, uint8_t* ring,
                                  Partial<kHeadDim>& out) {
  using Element = typename ElementOf<kKind>::Type;
  constexpr int kSlots = DecodePlace<kKind, kHeadDim>::kSlots;
  const bool own = chunk == OwnChunkOf(tile);
  uint32_t q[kHeadDim / 16][4];
  if (kKind == PageKind::kInt8 && !own) {
    const CodedSlices<kHeadDim> slices =
        CodedChunk<kHeadDim>(args, ctx.block_y(), args.pages[tile.first_page + chunk]);
    const RingFeed<CodedSlices<kHeadDim>, kSlots> feed{slices, ring};
    feed.Start(ctx);
    LoadQuery<kHeadDim>(ctx, args, tile, 0, q);
    AttendCodedChunk<kHeadDim>(ctx, feed, slices.page + CodedSlices<kHeadDim>::kHeader, q,
                               out);
  } else {
    const int page = kKind == PageKind::kInt8 ? 0 : args.pages[tile.first_page + chunk];
    const PlainSlices<kHeadDim> slices =
        PlainChunk<kKind, kHeadDim>(args, tile, ctx.block_y(), own, page);
    const RingFeed<PlainSlices<kHeadDim>, kSlots> feed{slices, ring};
    feed.Start(ctx);
    LoadQuery<kHeadDim>(ctx, args, tile, 0, q);
    AttendPlainChunk<Element, kHeadDim>(ctx, feed, q, MaskOf(tile, own, 0), out);
  }
}

template <PageKind kKind, int kHeadDim, class Ctx>
RENGA_DEVICE void StorePartial(Ctx& ctx, const Partial<kHeadDim>& part) {
  using Place = DecodePlace<kKind, kHeadDim>;
  float* o = ctx.template Shared<float>(Place::kRingBytes * ctx.warp());
  float* sums = ctx.template Shared<float>(Place::kSumsAt) + 32 * ctx.warp();
  const int g = ctx.lane() >> 2;
  const int t = ctx.lane() & 3;
  RENGA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = g + 8 * half;
    RENGA_UNROLL
    for (int i = 0; i < kHeadDim / 8; ++i) {
      const uint64_t low = FloatAsBits(part.o[i][2 * half]);
      const uint64_t high = FloatAsBits(part.o[i][2 * half + 1]);
      *reinterpret_cast<uint64_t*>(o + Place::kPitch * row + 8 * i + 2 * t) =
          low | high << 32;
    }
  }
  if (t == 0) {
    RENGA_UNROLL
    for (int half = 0; half < 2; ++half) {
      sums[2 * (g + 8 * half)] = part.m[half];
      sums[2 * (g + 8 * half) + 1] = part.l[half];
    }
  }
}

// m, l and 4 channels of one row.
struct RowPart {
  float m;
  float l;
  float o[4];
};

RENGA_DEVICE RowPart RowPartOf(float m, float l, Vec16 o) {
  return {m,
          l,
          {BitsAsFloat(o.word[0]), BitsAsFloat(o.word[1]), BitsAsFloat(o.word[2]),
           BitsAsFloat(o.word[3])}};
}

RENGA_DEVICE void FoldInto(RowPart& a, const RowPart& b) {
  const FoldWeights w = WeightsOf(a.m, b.m);
  a.m = w.m;
  a.l = Fold(a.l, b.l, w);
  RENGA_UNROLL
  for (int i = 0; i < 4; ++i) a.o[i] = Fold(a.o[i], b.o[i], w);
}

// out = o / l of 4 channels of packed row `row`.
RENGA_DEVICE void WriteRow(const AttentionArgs& args, const QueryTile& tile, int kv_head,
                           int row, int channel, const RowPart& part) {
  const PackedRow at = PackedRowOf(args, tile, kv_head, row);
  uint64_t four = 0;
  RENGA_UNROLL
  for (int i = 0; i < 4; ++i) {
    four |= uint64_t{FloatToHalf(Divide(part.o[i], part.l))} << (16 * i);
  }
  uint16_t* to = args.out + at.row * args.out_stride + at.head * args.head_dim + channel;
  *reinterpret_cast<uint64_t*>(to) = four;
}

RENGA_DEVICE float* PartialAt(const AttentionArgs& args, const QueryTile& tile, int group,
                              int kv_head) {
  const int64_t slot = tile.first_partial + group;
  return args.partials + (slot * args.kv_heads + kv_head) * (16 * (2 + args.head_dim));
}

// Folds the chunks of a group, in order, and writes its partial, or `out` where the tile
// has this group alone.
template <PageKind kKind, int kHeadDim, class Ctx>
RENGA_DEVICE void FoldGroup(Ctx& ctx, const AttentionArgs& args, const QueryTile& tile,
                            int group) {
  using Place = DecodePlace<kKind, kHeadDim>;
  constexpr int kVectors = kHeadDim / 4;
  const int left = OwnChunkOf(tile) - kGroupChunks * group + 1;
  const int chunks = left < kGroupChunks ? left : kGroupChunks;
  RENGA_NO_UNROLL
  for (int i = ctx.thread(); i < kDecodeTileRows * kVectors; i += kAttentionThreads) {
    const int row = i / kVectors;
    const int channel = 4 * (i % kVectors);
    if (row >= PackedRows(tile)) break;
    const float* o = ctx.template Shared<float>(0) + Place::kPitch * row + channel;
    const float* sums = ctx.template Shared<float>(Place::kSumsAt) + 2 * row;
    RowPart part = RowPartOf(sums[0], sums[1], ctx.SharedLoad16(o));
    RENGA_NO_UNROLL
    for (int c = 1; c < chunks; ++c) {
      FoldInto(part, RowPartOf(sums[32 * c], sums[32 * c + 1],
                               ctx.SharedLoad16(o + Place::kRingBytes / 4 * c)));
    }
    if (GroupsOf(tile) == 1) {
      WriteRow(args, tile, ctx.block_y(), row, channel, part);
      continue;
    }
    float* to = PartialAt(args, tile, group, ctx.block_y());
    if (channel == 0) {
      to[2 * row] = part.m;
      to[2 * row + 1] = part.l;
    }
    ctx.Store16(to + 32 + kHeadDim * row + channel,
                {{FloatAsBits(part.o[0]), FloatAsBits(part.o[1]), FloatAsBits(part.o[2]),
                  FloatAsBits(part.o[3])}});
  }
}

// Attention of tiles of at most 16 packed rows over their pages, by groups of 4 chunks.
//   s = q . k;  p = exp2(s - max s);  l = sum p;  o = p V;  fold: src/README.md
// Shapes: attention.h. Launch: (groups, KV heads, tiles) blocks of 4 warps; a warp takes
// one chunk; blocks past the tiles, or past a tile's groups, return.
// Traffic: every page of the group once, q once per warp, one partial per packed row and
// group (none where there is one group).
template <PageKind kKind, int kHeadDim, class Ctx>
RENGA_DEVICE void DecodeAttention(Ctx& ctx, const AttentionArgs& args) {
  if (ctx.block_z() >= args.tile_count[0]) return;
  const QueryTile tile = LoadTile(ctx, args, ctx.block_z());
  const int group = ctx.block_x();
  if (group >= GroupsOf(tile)) return;
  const int chunk = kGroupChunks * group + ctx.warp();
  if (chunk <= OwnChunkOf(tile)) {
    uint8_t* ring = ctx.template Shared<uint8_t>(
        DecodePlace<kKind, kHeadDim>::kRingBytes * ctx.warp());
    Partial<kHeadDim> part;
    AttendFromPages<kKind, kHeadDim>(ctx, args, tile, chunk, ring, part);
    ctx.WarpSync();  // The partial goes over the ring.
    StorePartial<kKind, kHeadDim>(ctx, part);
  }
  ctx.Barrier();
  FoldGroup<kKind, kHeadDim>(ctx, args, tile, group);
}

// Folds the groups of every tile that has more than one, in order, and divides.
// Launch: (16 * hd / 4 / threads, KV heads, tiles) blocks; a thread takes 4 channels of a
// packed row. Traffic: each group's partial once, `out` once.
template <class Ctx>
RENGA_DEVICE void MergeGroups(Ctx& ctx, const AttentionArgs& args) {
  if (ctx.block_z() >= args.tile_count[0]) return;
  const QueryTile tile = LoadTile(ctx, args, ctx.block_z());
  const int groups = GroupsOf(tile);
  const int vectors = args.head_dim / 4;
  const int at = kAttentionThreads * ctx.block_x() + ctx.thread();
  const int row = at / vectors;
  if (groups == 1 || row >= PackedRows(tile)) return;
  const int channel = 4 * (at - row * vectors);
  const float* from = PartialAt(args, tile, 0, ctx.block_y());
  const int64_t stride = int64_t{16} * (2 + args.head_dim) * args.kv_heads;
  const int o_at = 32 + args.head_dim * row + channel;
  RowPart part = RowPartOf(from[2 * row], from[2 * row + 1], ctx.Load16(from + o_at));
  for (int group = 1; group < groups; ++group) {
    from += stride;
    FoldInto(part, RowPartOf(from[2 * row], from[2 * row + 1], ctx.Load16(from + o_at)));
  }
  WriteRow(args, tile, ctx.block_y(), row, channel, part);
}

// ---- Prefill.

// A block's shared memory: two chunks in turn, then every thread's part of its rows'
// total over the groups so far.
template <int kHeadDim>
struct PrefillPlace {
  static constexpr int kSliceBytes = 32 * kHeadDim;
  static constexpr int kChunkBytes = 8 * kSliceBytes;
  static constexpr int kTotalAt = 2 * kChunkBytes;
  static constexpr int kHeaderAt = 4 * kSliceBytes;  // Of a coded chunk, behind it.
};

// Starts the copy of a chunk; a warp takes a quarter of it.
template <PageKind kKind, int kHeadDim, class Ctx>
RENGA_DEVICE void StageChunk(Ctx& ctx, const AttentionArgs& args, const QueryTile& tile,
                             int chunk, int page) {
  using Place = PrefillPlace<kHeadDim>;
  const bool own = chunk == OwnChunkOf(tile);
  uint8_t* to = ctx.template Shared<uint8_t>(Place::kChunkBytes * (chunk % 2));
  uint8_t* slice = to + Place::kSliceBytes * ctx.warp();
  if (kKind == PageKind::kInt8 && !own) {
    using Slices = CodedSlices<kHeadDim>;
    const Slices slices = CodedChunk<kHeadDim>(args, ctx.block_y(), page);
    slices.Copy(ctx, ctx.warp(), slice);
    static_assert(Slices::kHeaderBytes / 16 <= kAttentionThreads);
    if (ctx.thread() < Slices::kHeaderBytes / 16) {
      ctx.CopyAsync16(to + Place::kHeaderAt + 16 * ctx.thread(),
                      slices.page + Slices::kHeader + 16 * ctx.thread(), true);
    }
  } else {
    const PlainSlices<kHeadDim> slices =
        PlainChunk<kKind, kHeadDim>(args, tile, ctx.block_y(), own, page);
    slices.CopyKeys(ctx, ctx.warp(), slice);
    slices.CopyValues(ctx, ctx.warp(), slice + 4 * Place::kSliceBytes);
  }
}

template <PageKind kKind, int kHeadDim, class Ctx>
RENGA_DEVICE void AttendStaged(Ctx& ctx, const QueryTile& tile, int chunk,
                               const uint32_t (&q)[kHeadDim / 16][4],
                               Partial<kHeadDim>& out) {
  using Place = PrefillPlace<kHeadDim>;
  using Element = typename ElementOf<kKind>::Type;
  const bool own = chunk == OwnChunkOf(tile);
  const uint8_t* base = ctx.template Shared<uint8_t>(Place::kChunkBytes * (chunk % 2));
  const StagedFeed<Place::kSliceBytes> feed{base};
  if (kKind == PageKind::kInt8 && !own) {
    AttendCodedChunk<kHeadDim>(ctx, feed, base + Place::kHeaderAt, q, out);
  } else {
    AttendPlainChunk<Element, kHeadDim>(ctx, feed, q, MaskOf(tile, own, 16 * ctx.warp()),
                                        out);
  }
}

// The total's o in shared memory: each thread reads only what it wrote.
template <int kHeadDim, class Ctx>
RENGA_DEVICE float* TotalAt(Ctx& ctx, int i) {
  return ctx.template Shared<float>(PrefillPlace<kHeadDim>::kTotalAt) +
         (i * kAttentionThreads + ctx.thread()) * 4;
}

template <int kHeadDim, class Ctx>
RENGA_DEVICE void KeepTotal(Ctx& ctx, const Partial<kHeadDim>& part) {
  RENGA_UNROLL
  for (int i = 0; i < kHeadDim / 8; ++i) {
    ctx.SharedStore16(TotalAt<kHeadDim>(ctx, i),
                      {{FloatAsBits(part.o[i][0]), FloatAsBits(part.o[i][1]),
                        FloatAsBits(part.o[i][2]), FloatAsBits(part.o[i][3])}});
  }
}

// group = fold of the kept total and group.
template <int kHeadDim, class Ctx>
RENGA_DEVICE void FoldTotal(Ctx& ctx, const float (&m)[2], const float (&l)[2],
                            Partial<kHeadDim>& group) {
  const FoldWeights w[2] = {WeightsOf(m[0], group.m[0]), WeightsOf(m[1], group.m[1])};
  RENGA_UNROLL
  for (int row = 0; row < 2; ++row) {
    group.m[row] = w[row].m;
    group.l[row] = Fold(l[row], group.l[row], w[row]);
  }
  RENGA_UNROLL
  for (int i = 0; i < kHeadDim / 8; ++i) {
    const Vec16 total = ctx.SharedLoad16(TotalAt<kHeadDim>(ctx, i));
    RENGA_UNROLL
    for (int e = 0; e < 4; ++e) {
      group.o[i][e] = Fold(BitsAsFloat(total.word[e]), group.o[i][e], w[e >> 1]);
    }
  }
}

// out = o / l of the warp's rows.
template <int kHeadDim, class Ctx>
RENGA_DEVICE void WriteRows(Ctx& ctx, const AttentionArgs& args, const QueryTile& tile,
                            const Partial<kHeadDim>& part) {
  RENGA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = 16 * ctx.warp() + 8 * half + (ctx.lane() >> 2);
    if (row < PackedRows(tile)) {
      const PackedRow at = PackedRowOf(args, tile, ctx.block_y(), row);
      uint16_t* to = args.out + at.row * args.out_stride + at.head * kHeadDim;
      RENGA_UNROLL
      for (int i = 0; i < kHeadDim / 8; ++i) {
        *reinterpret_cast<uint32_t*>(to + 8 * i + 2 * (ctx.lane() & 3)) =
            PackHalf2(Divide(part.o[i][2 * half], part.l[half]),
                      Divide(part.o[i][2 * half + 1], part.l[half]));
      }
    }
  }
}

// Attention of tiles of at most 64 packed rows over all their pages; formula as for
// DecodeAttention, and the same bits.
// Launch: (tiles, KV heads) blocks of 4 warps, 16 packed rows each; blocks past the tiles
// return. A chunk is copied while the one before it is computed.
// Traffic: every page of the tile once per block, q once (int8: once per page), `out`
// once.
template <PageKind kKind, int kHeadDim, class Ctx>
RENGA_DEVICE void PrefillAttention(Ctx& ctx, const AttentionArgs& args) {
  if (ctx.block_x() >= args.tile_count[0]) return;
  const QueryTile tile = LoadTile(ctx, args, ctx.block_x());
  const int last = OwnChunkOf(tile);
  const int32_t* pages = args.pages + tile.first_page;
  const bool rows = 16 * ctx.warp() < PackedRows(tile);  // Of this warp.

  // The own chunk has no page of int8: its entry is read, but not used.
  StageChunk<kKind, kHeadDim>(ctx, args, tile, 0, pages[0]);
  ctx.CopyCommit();
  int next_page = last > 0 ? pages[1] : 0;
  uint32_t q[kHeadDim / 16][4];
  Partial<kHeadDim> group;
  float total_m[2];
  float total_l[2];
  RENGA_NO_UNROLL
  for (int chunk = 0; chunk <= last; ++chunk) {
    ctx.template CopyWait<0>();
    ctx.Barrier();
    if (chunk < last) {
      StageChunk<kKind, kHeadDim>(ctx, args, tile, chunk + 1, next_page);
      ctx.CopyCommit();
      if (chunk + 1 < last) next_page = pages[chunk + 2];
    }
    if (!rows) continue;
    // Scaled queries leave no registers for q itself at hd 128.
    if (kKind == PageKind::kInt8 || chunk == 0) {
      LoadQuery<kHeadDim>(ctx, args, tile, 16 * ctx.warp(), q);
    }
    Partial<kHeadDim> part;
    AttendStaged<kKind, kHeadDim>(ctx, tile, chunk, q, part);
    if (chunk % kGroupChunks == 0) {
      group = part;
    } else {
      FoldInto(group, part);
    }
    if (chunk != last && chunk % kGroupChunks != kGroupChunks - 1) continue;
    if (chunk >= kGroupChunks) FoldTotal<kHeadDim>(ctx, total_m, total_l, group);
    if (chunk == last) {
      WriteRows<kHeadDim>(ctx, args, tile, group);
    } else {
      KeepTotal<kHeadDim>(ctx, group);
      RENGA_UNROLL
      for (int row = 0; row < 2; ++row) {
        total_m[row] = group.m[row];
        total_l[row] = group.l[row];
      }
    }
  }
}

// ---- Entry points.

#define RENGA_ATTENTION_IDS(name, id_of)                                      \
  inline constexpr KernelId k##name##F16Of16 = id_of(PageKind::kF16, 16);     \
  inline constexpr KernelId k##name##F16Of32 = id_of(PageKind::kF16, 32);     \
  inline constexpr KernelId k##name##F16Of64 = id_of(PageKind::kF16, 64);     \
  inline constexpr KernelId k##name##F16Of96 = id_of(PageKind::kF16, 96);     \
  inline constexpr KernelId k##name##F16Of128 = id_of(PageKind::kF16, 128);   \
  inline constexpr KernelId k##name##Bf16Of16 = id_of(PageKind::kBf16, 16);   \
  inline constexpr KernelId k##name##Bf16Of32 = id_of(PageKind::kBf16, 32);   \
  inline constexpr KernelId k##name##Bf16Of64 = id_of(PageKind::kBf16, 64);   \
  inline constexpr KernelId k##name##Bf16Of96 = id_of(PageKind::kBf16, 96);   \
  inline constexpr KernelId k##name##Bf16Of128 = id_of(PageKind::kBf16, 128); \
  inline constexpr KernelId k##name##Int8Of16 = id_of(PageKind::kInt8, 16);   \
  inline constexpr KernelId k##name##Int8Of32 = id_of(PageKind::kInt8, 32);   \
  inline constexpr KernelId k##name##Int8Of64 = id_of(PageKind::kInt8, 64);   \
  inline constexpr KernelId k##name##Int8Of96 = id_of(PageKind::kInt8, 96);   \
  inline constexpr KernelId k##name##Int8Of128 = id_of(PageKind::kInt8, 128);

RENGA_ATTENTION_IDS(Decode, DecodeAttentionId)
RENGA_ATTENTION_IDS(Prefill, PrefillAttentionId)

// Least blocks per SM: what 64 Ki registers allow without spills.
#define RENGA_DECODE_KERNELS(X, Kind)            \
  X(kDecode##Kind##Of16, AttentionArgs, 128, 4,  \
    (DecodeAttention<PageKind::k##Kind, 16>))    \
  X(kDecode##Kind##Of32, AttentionArgs, 128, 4,  \
    (DecodeAttention<PageKind::k##Kind, 32>))    \
  X(kDecode##Kind##Of64, AttentionArgs, 128, 4,  \
    (DecodeAttention<PageKind::k##Kind, 64>))    \
  X(kDecode##Kind##Of96, AttentionArgs, 128, 4,  \
    (DecodeAttention<PageKind::k##Kind, 96>))    \
  X(kDecode##Kind##Of128, AttentionArgs, 128, 3, \
    (DecodeAttention<PageKind::k##Kind, 128>))

#define RENGA_PREFILL_KERNELS(X, Kind)            \
  X(kPrefill##Kind##Of16, AttentionArgs, 128, 2,  \
    (PrefillAttention<PageKind::k##Kind, 16>))    \
  X(kPrefill##Kind##Of32, AttentionArgs, 128, 2,  \
    (PrefillAttention<PageKind::k##Kind, 32>))    \
  X(kPrefill##Kind##Of64, AttentionArgs, 128, 2,  \
    (PrefillAttention<PageKind::k##Kind, 64>))    \
  X(kPrefill##Kind##Of96, AttentionArgs, 128, 2,  \
    (PrefillAttention<PageKind::k##Kind, 96>))    \
  X(kPrefill##Kind##Of128, AttentionArgs, 128, 2, \
    (PrefillAttention<PageKind::k##Kind, 128>))

#define RENGA_ATTENTION_KERNELS(X) \
  RENGA_DECODE_KERNELS(X, F16)     \
  RENGA_DECODE_KERNELS(X, Bf16)    \
  RENGA_DECODE_KERNELS(X, Int8)    \
  RENGA_PREFILL_KERNELS(X, F16)    \
  RENGA_PREFILL_KERNELS(X, Bf16)   \
  RENGA_PREFILL_KERNELS(X, Int8)   \
  X(kMergeGroups, AttentionArgs, 128, 8, MergeGroups)

}  // namespace renga::cuda
