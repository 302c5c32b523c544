// Exact attention on the merge tree, over Vec, for up to 6 queries (rows x heads of one
// KV head) at a time: a chunk's K and V are read once for all of them. The definition is
// in ops_portable.cc; included after a vec_*-inl.h.
//
// Traffic: K and V of each page once per 6 queries (from L2 after the first six, for
// which the next block of memory is prefetched: K is read as 4 streams, which the
// hardware alone follows at half the speed). Scores: 16 positions to a Vec, kScoreVecs of
// them against each broadcast channel of q. Values: 16 channels to a Vec against each
// broadcast p.
//
// A position that a query does not see never enters its sums: score lanes behind the last
// one are masked, and value rows that only some of the queries see are added query by
// query.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

constexpr int kMaxQueries = 6;

// States (m, l, o) of up to 6 queries; o is padded to whole Vecs.
struct Partials {
  float m[kMaxQueries];
  float l[kMaxQueries];
  alignas(64) float o[kMaxQueries][kMaxHeadDim];
};

struct QueryTile {
  int count;
  const float* q[kMaxQueries];
  int64_t row[kMaxQueries];  // Of the item.
  int64_t head[kMaxQueries];
  int64_t position[kMaxQueries];
  bool whole[kMaxQueries];    // The item covers all groups of this query.
  int64_t seen[kMaxQueries];  // Positions of the current chunk, 0..64.
  bool cold;                  // K and V come from memory: the first tile of an item.
  const void* next_k;         // K of the chunk after this one, if it is to be prefetched.
  alignas(64) float scores[kMaxQueries][kChunkPositions];  // Then p.
};

// The cache lines of `bytes` bytes at `p`.
static inline void Prefetch(const void* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(static_cast<const char*>(p) + i);
  }
}

// scores[q][16 b .. ) for kBlocks blocks of 16 positions; k is that of the first block.
// `v`: value rows to prefetch on the way, [16 kBlocks, hd] spread over hd, or nullptr.
template <class Element, int kBlocks, int kQueries>
static inline void ScoreBlocks(QueryTile& tile, const Element* k, int64_t hd,
                               int64_t first_block, const Element* v) {
  Vec acc[kBlocks][kQueries];
  for (int b = 0; b < kBlocks; ++b) {
    for (int n = 0; n < kQueries; ++n) acc[b][n] = Zero();
  }
  for (int64_t i = 0; i < hd; ++i) {
    Vec keys[kBlocks];
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) keys[b] = Load(k + (b * hd + i) * 16);
    if (v != nullptr) Prefetch(v + i * 16 * kBlocks, 16 * kBlocks * sizeof(Element));
#pragma GCC unroll 6
    for (int n = 0; n < kQueries; ++n) {
      const Vec q = Set(tile.q[n][i]);
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) acc[b][n] = Fma(keys[b], q, acc[b][n]);
    }
  }
  for (int n = 0; n < kQueries; ++n) {
    for (int b = 0; b < kBlocks; ++b) {
      Store(tile.scores[n] + (first_block + b) * 16, acc[b][n]);
    }
  }
}

template <class Element, int kQueries>
static void Scores(QueryTile& tile, const Element* k, int64_t hd, int64_t blocks) {
  const Element* v = kScoreVecs > 1 && tile.cold ? k + kChunkPositions * hd : nullptr;
  int64_t b = 0;
  for (; b + kScoreVecs <= blocks; b += kScoreVecs) {
    ScoreBlocks<Element, kScoreVecs, kQueries>(tile, k + b * hd * 16, hd, b, v);
  }
  for (; b < blocks; ++b) {
    ScoreBlocks<Element, 1, kQueries>(tile, k + b * hd * 16, hd, b, nullptr);
  }
}

// Where ValueVecs reads: the positions [begin, end) from some channel on.
template <class Element>
struct ValueRange {
  const Element* v;     // [64, hd]
  const Element* next;  // The same place of the next chunk's K, or nullptr.
  int64_t hd;
  int64_t begin;
  int64_t end;
};

// o[n][channel ..) = fma(p, v, o) over kVecs Vecs of channels, of which the last has
// `tail` (1..16).
template <class Element, int kVecs, int kQueries>
static inline void ValueVecs(const QueryTile& tile, int first_query,
                             const ValueRange<Element>& range, float (*o)[kMaxHeadDim],
                             int64_t tail) {
  Vec acc[kVecs][kQueries];
  for (int c = 0; c < kVecs; ++c) {
    for (int n = 0; n < kQueries; ++n) acc[c][n] = Load(o[first_query + n] + c * 16);
  }
  for (int64_t t = range.begin; t < range.end; ++t) {
    Vec values[kVecs];
#pragma GCC unroll 4
    for (int c = 0; c < kVecs; ++c) {
      const Element* source = range.v + t * range.hd + c * 16;
      values[c] = c + 1 < kVecs || tail >= 16 ? Load(source) : LoadN(source, tail);
    }
    if (range.next != nullptr) {
      Prefetch(range.next + t * range.hd, kVecs * 16 * sizeof(Element));
    }
#pragma GCC unroll 6
    for (int n = 0; n < kQueries; ++n) {
      const Vec p = Set(tile.scores[first_query + n][t]);
#pragma GCC unroll 4
      for (int c = 0; c < kVecs; ++c) acc[c][n] = Fma(p, values[c], acc[c][n]);
    }
  }
  for (int c = 0; c < kVecs; ++c) {
    for (int n = 0; n < kQueries; ++n) Store(o[first_query + n] + c * 16, acc[c][n]);
  }
}

template <class Element, int kQueries>
// NOLINTNEXTLINE(readability-function-size): what varies, and where to put it.
static void Values(const QueryTile& tile, int first_query, const Element* v, int64_t hd,
                   int64_t begin, int64_t end, Partials& out) {
  const Element* next_k = static_cast<const Element*>(tile.next_k);
  float(*o)[kMaxHeadDim] = out.o;
  for (int64_t i = 0; i < hd;) {
    const ValueRange<Element> range = {v + i, next_k != nullptr ? next_k + i : nullptr,
                                       hd, begin, end};
    float(*channels)[kMaxHeadDim] = reinterpret_cast<float(*)[kMaxHeadDim]>(o[0] + i);
    if (i + kScoreVecs * 16 <= hd) {
      ValueVecs<Element, kScoreVecs, kQueries>(tile, first_query, range, channels, 16);
      i += kScoreVecs * 16;
    } else {
      ValueVecs<Element, 1, kQueries>(tile, first_query, range, channels, hd - i);
      i += 16;
    }
  }
}

// scores -> p, m, l of one query that sees `seen` (1..64) positions.
static inline void Softmax(float* scores, int64_t seen, float& m, float& l) {
  const Vec lowest = Set(-__builtin_inff());
  Vec maxima = lowest;
  for (int64_t t = 0; t < seen; t += 16) {
    maxima = Max(maxima, First(seen - t, Load(scores + t), lowest));
  }
  m = FoldMax(maxima);
  Vec sums = Zero();
  for (int64_t t = 0; t < seen; t += 16) {
    const Vec p = First(seen - t, Exp2(Sub(Load(scores + t), Set(m))), Zero());
    Store(scores + t, p);
    sums = Add(sums, p);
  }
  l = FoldSum(sums);
}

template <class Element>
struct ChunkSteps {
  void (*scores)(QueryTile&, const Element*, int64_t, int64_t);
  void (*values)(const QueryTile&, int, const Element*, int64_t, int64_t, int64_t,
                 Partials&);
};

template <class Element>
static const ChunkSteps<Element>& StepsFor(int queries) {
  static constexpr ChunkSteps<Element> kSteps[kMaxQueries] = {
      {Scores<Element, 1>, Values<Element, 1>}, {Scores<Element, 2>, Values<Element, 2>},
      {Scores<Element, 3>, Values<Element, 3>}, {Scores<Element, 4>, Values<Element, 4>},
      {Scores<Element, 5>, Values<Element, 5>}, {Scores<Element, 6>, Values<Element, 6>}};
  return kSteps[queries - 1];
}

// One chunk for all queries of the tile that see any of it.
template <class Element>
static void Chunk(QueryTile& tile, const Element* page, int64_t hd, Partials& out) {
  int64_t most = 0;
  int64_t least = kChunkPositions;
  for (int n = 0; n < tile.count; ++n) {
    most = tile.seen[n] > most ? tile.seen[n] : most;
    least = tile.seen[n] < least ? tile.seen[n] : least;
  }
  const ChunkSteps<Element>& steps = StepsFor<Element>(tile.count);
  steps.scores(tile, page, hd, (most + 15) / 16);
  for (int n = 0; n < tile.count; ++n) {
    for (int64_t i = 0; i < hd; i += 16) Store(out.o[n] + i, Zero());
    if (tile.seen[n] > 0) Softmax(tile.scores[n], tile.seen[n], out.m[n], out.l[n]);
  }
  const Element* v = page + kChunkPositions * hd;
  steps.values(tile, 0, v, hd, 0, least, out);
  for (int n = 0; n < tile.count && most > least; ++n) {
    if (tile.seen[n] > least) {
      Values<Element, 1>(tile, n, v, hd, least, tile.seen[n], out);
    }
  }
}

// exp2(m_a - m), exp2(m_b - m) of all queries at once.
struct FoldWeights {
  alignas(64) float w[16];  // a: [n], b: [8 + n]
};

static inline FoldWeights WeightsOf(const Partials& a, const Partials& b, int count,
                                    float* m) {
  FoldWeights weights = {};
  for (int n = 0; n < count; ++n) {
    m[n] = a.m[n] > b.m[n] ? a.m[n] : b.m[n];
    weights.w[n] = a.m[n] - m[n];
    weights.w[8 + n] = b.m[n] - m[n];
  }
  Store(weights.w, Exp2(Load(weights.w)));
  return weights;
}

// `into` = fold of `into` and `next`, for the queries with `use[n]`.
static void FoldPartials(Partials& into, const Partials& next, const bool* use, int count,
                         int64_t hd) {
  float m[kMaxQueries];
  const FoldWeights weights = WeightsOf(into, next, count, m);
  for (int n = 0; n < count; ++n) {
    if (!use[n]) continue;
    const float wa = weights.w[n];
    const float wb = weights.w[8 + n];
    into.m[n] = m[n];
    into.l[n] = __builtin_fmaf(into.l[n], wa, next.l[n] * wb);
    for (int64_t i = 0; i < hd; i += 16) {
      Store(into.o[n] + i,
            Fma(Load(into.o[n] + i), Set(wa), Mul(Load(next.o[n] + i), Set(wb))));
    }
  }
}

static void CopyPartial(Partials& to, const Partials& from, int n, int64_t hd) {
  to.m[n] = from.m[n];
  to.l[n] = from.l[n];
  for (int64_t i = 0; i < hd; i += 16) Store(to.o[n] + i, Load(from.o[n] + i));
}

// Chunk `chunk` for the queries of the tile that see any of it. Int8Page has its own.
template <class Element>
static void ReadChunk(const AttendArgs& args, QueryTile& tile, int64_t chunk,
                      Partials& out) {
  const uint8_t* page = args.pool + args.pages[chunk] * args.page_stride;
  const bool more = tile.position[tile.count - 1] >= (chunk + 1) * kChunkPositions;
  tile.next_k = kScoreVecs > 1 && tile.cold && more
                    ? args.pool + args.pages[chunk + 1] * args.page_stride
                    : nullptr;
  Chunk<Element>(tile, reinterpret_cast<const Element*>(page), args.head_dim, out);
}

// One group of 4 chunks; false for `live` where the query sees nothing of it.
template <class Element>
static void Group(const AttendArgs& args, QueryTile& tile, int64_t group, Partials& state,
                  bool* live) {
  Partials next;
  for (int n = 0; n < tile.count; ++n) next.m[n] = next.l[n] = 0.0f;
  for (int64_t c = 0; c < kGroupChunks; ++c) {
    const int64_t first = (group * kGroupChunks + c) * kChunkPositions;
    bool any = false;
    bool use[kMaxQueries];
    for (int n = 0; n < tile.count; ++n) {
      const int64_t visible = tile.position[n] + 1 - first;
      tile.seen[n] = visible < 0                 ? 0
                     : visible < kChunkPositions ? visible
                                                 : kChunkPositions;
      use[n] = tile.seen[n] > 0;
      if (c == 0) live[n] = use[n];
      any = any || use[n];
    }
    if (!any) return;
    ReadChunk<Element>(args, tile, group * kGroupChunks + c, c == 0 ? state : next);
    if (c > 0) FoldPartials(state, next, use, tile.count, args.head_dim);
  }
}

static void WritePartial(const AttendArgs& args, const QueryTile& tile, int n,
                         int64_t group, const Partials& state) {
  const int64_t hd = args.head_dim;
  float* out = args.partials + args.partial_rows[tile.row[n]] * args.partial_row_stride +
               tile.head[n] * args.partial_head_stride + group * (kPartialHeader + hd);
  out[0] = state.m[n];
  out[1] = state.l[n];
  for (int64_t i = 0; i < hd; i += 16) {
    StoreN(out + kPartialHeader + i, Load(state.o[n] + i), hd - i);
  }
}

static void WriteOutput(const float* o, float l, int64_t hd, float* out) {
  for (int64_t i = 0; i < hd; i += 16) {
    StoreN(out + i, Div(Load(o + i), Set(l)), hd - i);
  }
}

template <class Element>
static void AttendTile(const AttendArgs& args, QueryTile& tile) {
  const int64_t hd = args.head_dim;
  Partials total;
  Partials state;
  for (int n = 0; n < tile.count; ++n) {
    total.m[n] = total.l[n] = state.m[n] = state.l[n] = 0.0f;
  }
  const int64_t last = tile.position[tile.count - 1] / (kGroupChunks * kChunkPositions);
  const int64_t item_end = args.first_group + args.groups;
  const int64_t end = item_end < last + 1 ? item_end : last + 1;
  for (int64_t g = args.first_group; g < end; ++g) {
    bool live[kMaxQueries] = {};
    Group<Element>(args, tile, g, state, live);
    bool fold[kMaxQueries];
    for (int n = 0; n < tile.count; ++n) {
      if (live[n] && !tile.whole[n]) WritePartial(args, tile, n, g, state);
      if (live[n] && tile.whole[n] && g == 0) CopyPartial(total, state, n, hd);
      fold[n] = live[n] && tile.whole[n] && g > 0;
    }
    if (g > 0) FoldPartials(total, state, fold, tile.count, hd);
  }
  for (int n = 0; n < tile.count; ++n) {
    if (!tile.whole[n]) continue;
    WriteOutput(total.o[n], total.l[n], hd,
                args.out + tile.row[n] * args.out_stride + tile.head[n] * hd);
  }
}

static void FillTile(const AttendArgs& args, int64_t first_query, int count,
                     QueryTile& tile) {
  tile.count = count;
  for (int n = 0; n < count; ++n) {
    tile.row[n] = (first_query + n) / args.heads;
    tile.head[n] = (first_query + n) % args.heads;
    tile.q[n] = args.q + tile.row[n] * args.q_stride + tile.head[n] * args.head_dim;
    tile.position[n] = args.first_position + tile.row[n];
    const int64_t needed = tile.position[n] / (kGroupChunks * kChunkPositions) + 1;
    tile.whole[n] = args.first_group == 0 && args.groups >= needed;
  }
}

template <class Element>
static void Attend(const AttendArgs& args) {
  // Tiles of nearly equal size: 8 queries are 4 + 4, not 6 + 2.
  const int64_t queries = static_cast<int64_t>(args.rows) * args.heads;
  const int64_t tiles = (queries + kMaxQueries - 1) / kMaxQueries;
  QueryTile tile;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = queries * t / tiles;
    const int64_t end = queries * (t + 1) / tiles;
    FillTile(args, first, static_cast<int>(end - first), tile);
    tile.cold = t == 0;
    AttendTile<Element>(args, tile);
  }
}

static void MergePartials(const float* partials, int64_t count, int64_t head_dim,
                          float* out) {
  Partials total;
  Partials next;
  const bool use[1] = {true};
  for (int64_t g = 0; g < count; ++g) {
    Partials& target = g == 0 ? total : next;
    target.m[0] = partials[0];
    target.l[0] = partials[1];
    for (int64_t i = 0; i < head_dim; i += 16) {
      Store(target.o[0] + i, LoadN(partials + kPartialHeader + i, head_dim - i));
    }
    if (g > 0) FoldPartials(total, next, use, 1, head_dim);
    partials += kPartialHeader + head_dim;
  }
  WriteOutput(total.o[0], total.l[0], head_dim, out);
}

}  // namespace RENGA_ISA
}  // namespace renga
