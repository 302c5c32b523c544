// Exact attention over int8 pages, for the tiles and on the merge tree of
// attention-inl.h. The definition is in attention_int8_portable-inl.h; included after
// attention-inl.h and int8_dots_<isa>-inl.h.
//
// Traffic: each page once per tile, that is 8.6 KB at head_dim 64 where f16 takes 16; the
// next closed page is prefetched while this one is in work.
//
// The queries of a tile may lie on both sides of a chunk's end: those whose own chunk it
// is read its f16 form, with the bits of attend_f16; the later ones read the page, whole.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

// The pages of `pool` are int8; a query's own chunk is f16, in `own`.
struct Int8Page {};

static inline const uint16_t* HalvesAt(const uint8_t* p) {
  return reinterpret_cast<const uint16_t*>(p);
}

// Codes of x [n], n % 16 == 0, the largest being kLargest; returns the scale.
template <bool kSigned>
static inline float CodeRow(const float* x, int64_t n, DotCodes& codes) {
  constexpr float kLargest = kSigned ? kLargestCode : kLargestWeightCode;
  Vec magnitudes = Zero();
  for (int64_t i = 0; i < n; i += 16) magnitudes = MaxMagnitude(magnitudes, Load(x + i));
  const float largest = BitsFloat(LargestMagnitude(magnitudes, magnitudes));
  const bool finite = largest < BitsFloat(0x7F800000u);  // Nor NaN.
  if (!finite || largest < 1e-30f) {
    __builtin_memset(&codes, 0, sizeof codes);
    return finite ? 0.0f : BitsFloat(0x7FC00000u);
  }
  const float inverse = kLargest / largest;
  for (int64_t i = 0; i < n; i += 16) {
    if constexpr (kSigned) StoreSigned(Load(x + i), inverse, i, codes);
    if constexpr (!kSigned) StoreUnsigned(Load(x + i), inverse, i, codes);
  }
  return largest / kLargest;
}

// One query against the header of a page: the codes of q * step, their scale, and the
// part of every score that the codes leave out.
static inline float CodeQuery(const float* q, const uint8_t* header, int64_t hd,
                              float& base, DotCodes& codes) {
  const uint16_t* min = HalvesAt(header);
  const uint16_t* step = min + hd;
  alignas(64) float w[kMaxHeadDim];
  Vec sums = Zero();
  for (int64_t c = 0; c < hd; c += 16) {
    const Vec channels = Load(q + c);
    Store(w + c, Mul(channels, Load(step + c)));
    sums = Fma(channels, Load(min + c), sums);
  }
  base = FoldSum(sums);
  return CodeRow<true>(w, hd, codes);
}

// p [64] -> codes of p * |scale|; returns their scale.
static inline float CodeWeights(const float* p, const uint8_t* scales, DotCodes& codes) {
  alignas(64) float u[kChunkPositions];
  for (int64_t t = 0; t < kChunkPositions; t += 16) {
    const Vec scale = MaxMagnitude(Load(HalvesAt(scales) + t), Zero());
    Store(u + t, Mul(Load(p + t), scale));
  }
  return CodeRow<false>(u, kChunkPositions, codes);
}

// Parts of at most kDotQueries of the queries [first, end), of nearly equal size.
template <class Part>
static inline void ForParts(int first, int end, Part part) {
  const int parts = (end - first + kDotQueries - 1) / kDotQueries;
  for (int i = 0; i < parts; ++i) {
    const int begin = first + (end - first) * i / parts;
    part(begin, first + (end - first) * (i + 1) / parts - begin);
  }
}

// One whole page for the queries of the tile from `first` on. `next`: the page to
// prefetch, or nullptr. Each step is done for all of them before the next one: a query's
// own chain of steps is too long for the processor to work ahead.
static void ClosedChunk(QueryTile& tile, int first, const uint8_t* page,
                        const uint8_t* next, int64_t hd, Partials& out) {
  const Int8PageFormat at = Int8PageOf(hd);
  DotCodes codes[kMaxQueries];
  float scale[kMaxQueries];
  float base[kMaxQueries];
  if (next != nullptr) Prefetch(next + at.key_min, at.bytes - at.key_min);
  for (int n = first; n < tile.count; ++n) {
    scale[n] = CodeQuery(tile.q[n], page + at.key_min, hd, base[n], codes[n]);
  }
  ForParts(first, tile.count, [&](int n, int count) {
    DotStepsFor(count).scores({page, n == first ? next : nullptr, codes + n, scale + n,
                               base + n, tile.scores + n, hd});
  });
  for (int n = first; n < tile.count; ++n) {
    Softmax(tile.scores[n], kChunkPositions, out.m[n], out.l[n]);
  }
  for (int n = first; n < tile.count; ++n) {
    scale[n] = CodeWeights(tile.scores[n], page + at.value_scale, codes[n]);
  }
  const uint8_t* next_values = next != nullptr ? next + at.value : nullptr;
  ForParts(first, tile.count, [&](int n, int count) {
    DotStepsFor(count).values({page + at.value, n == first ? next_values : nullptr,
                               codes + n, scale + n, out.o + n, hd});
  });
}

template <>
void ReadChunk<Int8Page>(const AttendArgs& args, QueryTile& tile, int64_t chunk,
                         Partials& out) {
  const int64_t end = (chunk + 1) * kChunkPositions;
  int later = 0;  // The first query whose own chunk comes after this one.
  while (later < tile.count && tile.position[later] < end) ++later;
  if (later > 0 && tile.position[later - 1] >= end - kChunkPositions) {
    for (int n = later; n < tile.count; ++n) tile.seen[n] = 0;  // Theirs comes below.
    tile.next_k = nullptr;
    const uint8_t* own = args.own[chunk - args.first_own_chunk];
    Chunk<uint16_t>(tile, HalvesAt(own), args.head_dim, out);
  }
  const uint8_t* page = args.pool + args.pages[chunk] * args.page_stride;
  const bool more = tile.position[tile.count - 1] >= end + kChunkPositions;
  const uint8_t* next =
      tile.cold && more ? args.pool + args.pages[chunk + 1] * args.page_stride : nullptr;
  if (later < tile.count) ClosedChunk(tile, later, page, next, args.head_dim, out);
}

}  // namespace RENGA_ISA
}  // namespace renga
