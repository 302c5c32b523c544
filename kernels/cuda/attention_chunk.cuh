// Attention of 16 query rows over one chunk in f16 or bf16 form, by one warp; and what
// the coded form (attention_coded.cuh) shares with it: softmax and fold.
//
// Fragments (context.h; lane = 4 g + t). Rows g and g + 8 of every accumulator are the
// query's packed rows. k of a score's mma: step s, index 2 t + e + 8 h = channel
// 16 s + 4 t + 2 h + e, for every form, so that a lane's part of q is 8 bytes in a row.
//
// A chunk comes as slices of 32 * hd bytes through shared memory: K blocks 0..3 of 16
// positions, then V by 16 positions. A feed hands them out in order; the arithmetic does
// not depend on it:
//   RingFeed    a warp's own ring of cp.async, no barrier of the block (decode)
//   StagedFeed  all slices are there (prefill)

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"
#include "kernels/cuda/words.h"

namespace renga::cuda {

// Softmax of rows g and g + 8 over some keys, not divided. o[i][2 r + e]: row g + 8 r,
// channel 8 i + 2 t + e.
template <int kHeadDim>
struct Partial {
  float m[2];
  float l[2];
  float o[kHeadDim / 8][4];
};

struct HalfElement {
  RENGA_DEVICE static uint32_t Pack(float low, float high) {
    return PackHalf2(low, high);
  }
  template <class Ctx>
  RENGA_DEVICE static void Mma(Ctx& ctx, float (&c)[4], const uint32_t (&a)[4],
                               const uint32_t (&b)[2]) {
    ctx.MmaF16(c, a, b);
  }
};

struct BfloatElement {
  RENGA_DEVICE static uint32_t Pack(float low, float high) {
    return PackBfloat2(low, high);
  }
  template <class Ctx>
  RENGA_DEVICE static void Mma(Ctx& ctx, float (&c)[4], const uint32_t (&a)[4],
                               const uint32_t (&b)[2]) {
    ctx.MmaBf16(c, a, b);
  }
};

// ---- The fold of src/README.md.

struct FoldWeights {
  float m;
  float a;
  float b;
};

RENGA_DEVICE FoldWeights WeightsOf(float m_a, float m_b) {
  const float m = Max(m_a, m_b);
  return {m, Exp2(m_a - m), Exp2(m_b - m)};
}

RENGA_DEVICE float Fold(float a, float b, const FoldWeights& w) {
  return Fma(a, w.a, b * w.b);
}

// a = fold of a and b.
template <int kHeadDim>
RENGA_DEVICE void FoldInto(Partial<kHeadDim>& a, const Partial<kHeadDim>& b) {
  RENGA_UNROLL
  for (int row = 0; row < 2; ++row) {
    const FoldWeights w = WeightsOf(a.m[row], b.m[row]);
    a.m[row] = w.m;
    a.l[row] = Fold(a.l[row], b.l[row], w);
    RENGA_UNROLL
    for (int i = 0; i < kHeadDim / 8; ++i) {
      a.o[i][2 * row] = Fold(a.o[i][2 * row], b.o[i][2 * row], w);
      a.o[i][2 * row + 1] = Fold(a.o[i][2 * row + 1], b.o[i][2 * row + 1], w);
    }
  }
}

// ---- Slices in shared memory. 16-byte pieces are swapped inside lines of 128 bytes, so
// that the 8 rows of an ldmatrix lie in different banks.

// K [channel][16 positions]: 2 pieces a row; ldmatrix takes rows of 4 lines.
RENGA_DEVICE int KeyPieceAt(int piece) {
  return piece ^ ((piece >> 3 & 1) | (piece >> 2 & 4));
}

// V [position][hd]: hd / 8 pieces a row; ldmatrix takes the same piece of 8 rows.
template <int kHeadDim>
RENGA_DEVICE int ValuePieceAt(int row, int piece_of_row) {
  const int swap = kHeadDim % 64 == 0   ? row & 7
                   : kHeadDim % 32 == 0 ? row >> 1 & 3
                                        : row >> 2 & 1;
  return (row * (kHeadDim / 8) + piece_of_row) ^ swap;
}

// A chunk in f16 or bf16 form; `visible` of its 64 positions may be read, the others are
// zeros (V that nobody wrote may be NaN, and 0 * NaN is not 0).
template <int kHeadDim>
struct PlainSlices {
  static constexpr int kCount = 8;
  static constexpr int kBytes = 32 * kHeadDim;

  const uint8_t* chunk;
  int visible;

  // By one warp, as all copies of slices.
  template <class Ctx>
  RENGA_DEVICE void CopyKeys(Ctx& ctx, int block, uint8_t* to) const {
    RENGA_UNROLL
    for (int i = 0; i < kBytes / 16 / kWarp; ++i) {
      const int piece = ctx.lane() + kWarp * i;
      const bool whole = 16 * block + 8 * (piece & 1) < visible;
      ctx.CopyAsync16(to + 16 * KeyPieceAt(piece), chunk + kBytes * block + 16 * piece,
                      whole);
    }
  }

  template <class Ctx>
  RENGA_DEVICE void CopyValues(Ctx& ctx, int block, uint8_t* to) const {
    constexpr int kRowPieces = kHeadDim / 8;
    RENGA_UNROLL
    for (int i = 0; i < kBytes / 16 / kWarp; ++i) {
      const int piece = ctx.lane() + kWarp * i;
      const int row = piece / kRowPieces;
      const bool whole = 16 * block + row < visible;
      ctx.CopyAsync16(to + 16 * ValuePieceAt<kHeadDim>(row, piece % kRowPieces),
                      chunk + kBytes * (4 + block) + 16 * piece, whole);
    }
  }

  template <class Ctx>
  RENGA_DEVICE void Copy(Ctx& ctx, int slice, uint8_t* to) const {
    if (slice < 4) {
      CopyKeys(ctx, slice, to);
    } else {
      CopyValues(ctx, slice - 4, to);
    }
  }
};

template <int kSliceBytes>
struct StagedFeed {
  const uint8_t* base;

  template <class Ctx>
  RENGA_DEVICE const uint8_t* Take(Ctx&, int slice) const {
    return base + kSliceBytes * slice;
  }
  template <class Ctx>
  RENGA_DEVICE void Done(Ctx&, int) const {}
};

// Each slice is one group of copies; a group stays empty where there is no slice left, so
// that the number of groups in flight is a constant.
template <class Slices, int kSlots>
struct RingFeed {
  const Slices& slices;
  uint8_t* base;

  template <class Ctx>
  RENGA_DEVICE void Start(Ctx& ctx) const {
    RENGA_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      if (slot < Slices::kCount) slices.Copy(ctx, slot, base + Slices::kBytes * slot);
      ctx.CopyCommit();
    }
  }
  template <class Ctx>
  RENGA_DEVICE const uint8_t* Take(Ctx& ctx, int slice) const {
    ctx.template CopyWait<kSlots - 1>();
    ctx.WarpSync();
    return base + Slices::kBytes * (slice % kSlots);
  }
  // Its slot may be filled again.
  template <class Ctx>
  RENGA_DEVICE void Done(Ctx& ctx, int slice) const {
    if (slice + kSlots < Slices::kCount) {
      ctx.WarpSync();
      slices.Copy(ctx, slice + kSlots, base + Slices::kBytes * (slice % kSlots));
    }
    ctx.CopyCommit();
  }
};

// ---- One chunk.

// s[2 b + h][2 r + e]: row g + 8 r, position 16 b + 8 h + 2 t + e.
template <class Element, int kHeadDim, class Feed, class Ctx>
RENGA_DEVICE void PlainScores(Ctx& ctx, const Feed& feed,
                              const uint32_t (&q)[kHeadDim / 16][4], float (&s)[8][4]) {
  // Matrix i of an ldmatrix: index 8 (i % 2) of k, positions 8 (i / 2).
  const int matrix = ctx.lane() >> 3;
  const int row = ctx.lane() & 7;
  const int channel = 4 * (row >> 1) + 2 * (matrix & 1) + (row & 1);
  const int lane_at = 16 * KeyPieceAt(2 * channel + (matrix >> 1));
  RENGA_UNROLL
  for (int block = 0; block < 4; ++block) {
    const uint8_t* slice = feed.Take(ctx, block);
    RENGA_UNROLL
    for (int i = 0; i < 4; ++i) s[2 * block][i] = s[2 * block + 1][i] = 0.0f;
    RENGA_UNROLL
    for (int step = 0; step < kHeadDim / 16; ++step) {
      uint32_t k[4];
      ctx.LoadMatrix4Trans(k, slice + 512 * step + lane_at);
      const uint32_t first[2] = {k[0], k[1]};
      const uint32_t second[2] = {k[2], k[3]};
      Element::Mma(ctx, s[2 * block], q[step], first);
      Element::Mma(ctx, s[2 * block + 1], q[step], second);
    }
    feed.Done(ctx, block);
  }
}

// o = p V; p[b] is the A fragment of positions 16 b..16 b + 15.
template <class Element, int kHeadDim, class Feed, class Ctx>
RENGA_DEVICE void PlainValues(Ctx& ctx, const Feed& feed, const uint32_t (&p)[4][4],
                              float (&o)[kHeadDim / 8][4]) {
  // Matrix i: positions 8 (i % 2), channels 8 (i / 2).
  const int matrix = ctx.lane() >> 3;
  const int row = 8 * (matrix & 1) + (ctx.lane() & 7);
  RENGA_UNROLL
  for (int block = 0; block < 4; ++block) {
    const uint8_t* slice = feed.Take(ctx, 4 + block);
    RENGA_UNROLL
    for (int pair = 0; pair < kHeadDim / 16; ++pair) {
      uint32_t v[4];
      ctx.LoadMatrix4Trans(
          v, slice + 16 * ValuePieceAt<kHeadDim>(row, 2 * pair + (matrix >> 1)));
      const uint32_t first[2] = {v[0], v[1]};
      const uint32_t second[2] = {v[2], v[3]};
      Element::Mma(ctx, o[2 * pair], p[block], first);
      Element::Mma(ctx, o[2 * pair + 1], p[block], second);
    }
    feed.Done(ctx, 4 + block);
  }
}

// m and l of rows g and g + 8; s becomes p = exp2(s - m). l is of the p before they are
// rounded.
template <class Ctx>
RENGA_DEVICE void SoftmaxRows(Ctx& ctx, float (&s)[8][4], float (&m)[2], float (&l)[2]) {
  RENGA_UNROLL
  for (int row = 0; row < 2; ++row) {
    float largest = kMinusInfinity;
    RENGA_UNROLL
    for (int i = 0; i < 8; ++i) {
      largest = Max(largest, Max(s[i][2 * row], s[i][2 * row + 1]));
    }
    largest = Max(largest, ctx.ShuffleXor(largest, 1));
    largest = Max(largest, ctx.ShuffleXor(largest, 2));
    float sum = 0.0f;
    RENGA_UNROLL
    for (int i = 0; i < 8; ++i) {
      s[i][2 * row] = Exp2(s[i][2 * row] - largest);
      s[i][2 * row + 1] = Exp2(s[i][2 * row + 1] - largest);
      sum += s[i][2 * row];
      sum += s[i][2 * row + 1];
    }
    sum += ctx.ShuffleXor(sum, 1);
    sum += ctx.ShuffleXor(sum, 2);
    m[row] = largest;
    l[row] = sum;
  }
}

// Two neighbouring tiles of p are one A fragment.
template <class Element>
RENGA_DEVICE void PackWeights(const float (&p)[8][4], uint32_t (&packed)[4][4]) {
  RENGA_UNROLL
  for (int b = 0; b < 4; ++b) {
    packed[b][0] = Element::Pack(p[2 * b][0], p[2 * b][1]);
    packed[b][1] = Element::Pack(p[2 * b][2], p[2 * b][3]);
    packed[b][2] = Element::Pack(p[2 * b + 1][0], p[2 * b + 1][1]);
    packed[b][3] = Element::Pack(p[2 * b + 1][2], p[2 * b + 1][3]);
  }
}

template <int kHeadDim>
RENGA_DEVICE void ClearValues(float (&o)[kHeadDim / 8][4]) {
  RENGA_UNROLL
  for (int i = 0; i < kHeadDim / 8; ++i) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
}

// Which positions of a chunk packed rows first_row.. first_row + 15 see: those up to
// their own. Not masked: all 64. What rows that the tile lacks see does not matter.
struct ChunkMask {
  bool masked;
  int first_position;  // In the chunk, of the tile.
  int heads;
  int first_row;
};

template <class Ctx>
RENGA_DEVICE void MaskScores(Ctx& ctx, const ChunkMask& mask, float (&s)[8][4]) {
  RENGA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = mask.first_row + 8 * half + (ctx.lane() >> 2);
    const int last = mask.first_position + row / mask.heads;
    RENGA_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int position = 8 * i + 2 * (ctx.lane() & 3);
      if (position > last) s[i][2 * half] = kMinusInfinity;
      if (position + 1 > last) s[i][2 * half + 1] = kMinusInfinity;
    }
  }
}

template <class Element, int kHeadDim, class Feed, class Ctx>
RENGA_DEVICE void AttendPlainChunk(Ctx& ctx, const Feed& feed,
                                   const uint32_t (&q)[kHeadDim / 16][4],
                                   const ChunkMask& mask, Partial<kHeadDim>& out) {
  float s[8][4];
  PlainScores<Element, kHeadDim>(ctx, feed, q, s);
  if (mask.masked) MaskScores(ctx, mask, s);
  SoftmaxRows(ctx, s, out.m, out.l);
  uint32_t p[4][4];
  PackWeights<Element>(s, p);
  ClearValues<kHeadDim>(out.o);
  PlainValues<Element, kHeadDim>(ctx, feed, p, out.o);
}

}  // namespace renga::cuda
