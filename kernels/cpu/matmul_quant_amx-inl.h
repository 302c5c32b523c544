// Products with Q4_1, Q4_K and Q8_0 weights on AMX: 16 rows of 16-bit codes times 16
// weight rows and 32 k by one TDPBSUD per plane. Included after
// matmul_quant_avx512-inl.h, whose products do the rows that fill no tile. `Tiles` holds
// the tile registers: AmxTiles, or the emulation that the tests bring.
//
// The scales change every 32 k, so the dots of each block leave the tile registers and
// the float operations of the other instruction sets follow, in their order: equal bits.
// Weights are the second operand because a panel has the order that it wants; the codes
// are transposed once per panel. A product and the floats that use it are kAhead blocks
// apart, so that neither waits for the other.
//
// No CPU with AMX has run this yet. Per 16 rows, 32 weight rows and 32 k, all coarse: 128
// float operations, 16 permutations of the codes and 6 operations that unpack nibbles (24
// for 64 rows) on two vector ports, so 75 cycles at least; the tile unit has 32 cycles of
// work, the store port 40, the loads 60. That is 218 MAC per cycle at most, 142 where all
// is fine; the AVX-512 form has 82 and 43 by the same count. Measured with the tile
// instructions left out (Sapphire Rapids, 64 rows, 576 k, other work beside it): 115 and
// 73, and 72 and 43 for AVX-512, so the gain is bounded by 1.6 for now. A dot that starts
// from kDotOrigin would save the conversion and cost a tile load: no gain.

#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/tile_config-inl.h"
#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

constexpr int64_t kStripRows = 64;    // Rows for which nibbles are unpacked once.
constexpr int64_t kChunkBlocks = 12;  // Blocks along k between two visits of the sums.
constexpr int64_t kAhead = 2;
// Blocks whose dots are kept. With one plane behind the other, what is stored and what is
// loaded next are no multiple of 4096 bytes apart.
constexpr int64_t kDotRing = 4;
constexpr int64_t kHalves = kPanelRows / kDotOutputs;
constexpr int64_t kPlaneCodes = kTileBlockCodes / kCodePlanes;  // Of a tile of 8 rows.

// What one strip of rows and one panel need: 41 KB, to stay in the first-level cache.
struct TileScratch {
  alignas(64) uint8_t weights[kChunkBlocks][kHalves][kBlockValues * kDotOutputs];
  alignas(64) int8_t codes[kChunkBlocks][kCodePlanes][kDotRows * kBlockValues];
  alignas(64) int32_t dots[kCodePlanes][kDotRing][kDotRows][kDotOutputs];
  alignas(64) float sums[kStripRows / kDotRows][kHalves][kDotRows][kDotOutputs];
  // Q8_0 weights are stored as q + 128: what the dots have too much.
  int32_t excess[kChunkBlocks][kDotRows];
  bool fine[kChunkBlocks];  // Any of the 16 rows.
};

// One plane of a tile of 8 rows, [k4 0..7][row 0..7][4] -> [row 0..7][k 0..31].
static inline void TransposeCodes(const int8_t* codes, int8_t* out) {
  const __m512i low_rows =
      _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26,  //
                        3, 11, 19, 27);
  const __m512i high_rows = _mm512_add_epi32(low_rows, _mm512_set1_epi32(4));
  const __m512i first_pair = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second_pair = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  __m512i k[4];  // Two k4 in each.
  for (int i = 0; i < 4; ++i) k[i] = _mm512_loadu_si512(codes + i * 64);
  const __m512i rows[2][2] = {{_mm512_permutex2var_epi32(k[0], low_rows, k[1]),
                               _mm512_permutex2var_epi32(k[2], low_rows, k[3])},
                              {_mm512_permutex2var_epi32(k[0], high_rows, k[1]),
                               _mm512_permutex2var_epi32(k[2], high_rows, k[3])}};
  for (int i = 0; i < 2; ++i) {
    _mm512_storeu_si512(out + i * 128,
                        _mm512_permutex2var_epi64(rows[i][0], first_pair, rows[i][1]));
    _mm512_storeu_si512(out + i * 128 + 64,
                        _mm512_permutex2var_epi64(rows[i][0], second_pair, rows[i][1]));
  }
}

template <WeightType kType, class Tiles>
class TileProduct {
 public:
  // `rows` rows from `first_row` on (a multiple of 16), at most kStripRows, of which the
  // last 16 are more than 8, times one panel.
  static void Strip(Tiles& tiles, const MatmulArgs& args, int64_t panel,
                    int64_t first_row, int64_t rows) {
    TileScratch scratch;
    const int64_t blocks = args.cols / kBlockValues;
    const int64_t groups = (rows + kDotRows - 1) / kDotRows;
    const int64_t chunks = (blocks + kChunkBlocks - 1) / kChunkBlocks;
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t first = blocks * i / chunks;
      Chunk chunk;
      chunk.panel = args.panels + panel * PanelBytes(kType, args.cols);
      chunk.first = first;
      chunk.blocks = blocks * (i + 1) / chunks - first;
      PrefetchNext(chunk);
      UnpackWeights(chunk, scratch);
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t tile = first_row / kTileRows + group * 2;
        chunk.x[0] = TileOf(args.quant, args.cols, tile);
        chunk.x[1] = TileOf(args.quant, args.cols, tile + 1);
        PackCodes(chunk, scratch);
        AddChunk<0>(tiles, chunk, scratch, scratch.sums[group][0]);
        AddChunk<1>(tiles, chunk, scratch, scratch.sums[group][1]);
      }
    }
    float* out = args.out + first_row * args.out_stride + panel * kPanelRows;
    for (int64_t row = 0; row < rows; ++row) {
      const auto& sums = scratch.sums[row / kDotRows];
      StoreOutputs(out + row * args.out_stride, Load(sums[0][row % kDotRows]),
                   Load(sums[1][row % kDotRows]), args.outputs - panel * kPanelRows,
                   args.add);
    }
  }

 private:
  // Some blocks of a panel and of 16 rows.
  struct Chunk {
    const uint8_t* panel;
    int64_t first;  // Block.
    int64_t blocks;
    QuantRows x[2];  // 8 rows each, from block 0 on.
  };

  static inline const uint8_t* BlockOf(const uint8_t* panel, int64_t b) {
    if constexpr (kType == WeightType::kQ4_K) return panel + Q4KBlockOffset(b);
    return panel + b * PanelBytes(kType, kBlockValues);
  }

  // To the second-level cache, while the products of this chunk are made. Behind the
  // last block lies the next panel, or nothing that a prefetch minds.
  static void PrefetchNext(const Chunk& chunk) {
    const int64_t next = chunk.first + chunk.blocks;
    const uint8_t* end = BlockOf(chunk.panel, next + kChunkBlocks);
    for (const uint8_t* w = BlockOf(chunk.panel, next); w < end; w += 64) {
      __builtin_prefetch(w, 0, 2);
    }
  }

  // Nibbles -> bytes, in the same order. Q8_0 has bytes already.
  static void UnpackWeights(const Chunk& chunk, TileScratch& scratch) {
    if constexpr (kType == WeightType::kQ8_0) return;
    const __m512i nibble = _mm512_set1_epi8(15);
    for (int64_t b = 0; b < chunk.blocks; ++b) {
      const uint8_t* w = BlockOf(chunk.panel, chunk.first + b);
      for (int64_t at = 0; at < kBlockValues * kDotOutputs; at += 64) {
        const __m512i pairs = LoadBytes(w + at);
        _mm512_storeu_si512(scratch.weights[b][0] + at, _mm512_and_si512(pairs, nibble));
        _mm512_storeu_si512(scratch.weights[b][1] + at,
                            _mm512_and_si512(_mm512_srli_epi16(pairs, 4), nibble));
      }
    }
  }

  static void PackCodes(const Chunk& chunk, TileScratch& scratch) {
    for (int64_t b = 0; b < chunk.blocks; ++b) {
      const int64_t block = chunk.first + b;
      const bool fine = (chunk.x[0].fine[block] | chunk.x[1].fine[block]) != 0;
      scratch.fine[b] = fine;
      for (int64_t i = 0; i < 2; ++i) {
        const int8_t* codes = chunk.x[i].codes + block * kTileBlockCodes;
        for (int64_t plane = 0; plane < (fine ? kCodePlanes : 1); ++plane) {
          TransposeCodes(codes + plane * kPlaneCodes,
                         scratch.codes[b][plane] + i * kPlaneCodes);
        }
        if constexpr (kType == WeightType::kQ8_0) {
          const __m256i sums = _mm256_loadu_si256(
              reinterpret_cast<const __m256i*>(chunk.x[i].code_sums + block * kTileRows));
          // All coarse: the dots are those of code / 256.
          const __m256i excess =
              fine ? _mm256_slli_epi32(sums, 7) : _mm256_srai_epi32(sums, 1);
          _mm256_storeu_si256(
              reinterpret_cast<__m256i*>(scratch.excess[b] + i * kTileRows), excess);
        }
      }
    }
  }

  // sums += the products of one half of the panel.
  template <int kHalf>
  static void AddChunk(Tiles& tiles, const Chunk& chunk, TileScratch& scratch,
                       float (&sums)[kDotRows][kDotOutputs]) {
    Vec acc[kDotRows];
    for (int64_t r = 0; r < kDotRows; ++r) {
      acc[r] = chunk.first == 0 ? Zero() : Load(sums[r]);
    }
    for (int64_t b = 0; b < chunk.blocks + kAhead; ++b) {
      if (b < chunk.blocks) MakeDots<kHalf>(tiles, chunk, b, scratch);
      if (b < kAhead) continue;
      if (scratch.fine[b - kAhead]) {
        AddDots<kHalf, true>(chunk, b - kAhead, scratch, acc);
      } else {
        AddDots<kHalf, false>(chunk, b - kAhead, scratch, acc);
      }
    }
    for (int64_t r = 0; r < kDotRows; ++r) Store(sums[r], acc[r]);
  }

  template <int kHalf>
  static inline void MakeDots(Tiles& tiles, const Chunk& chunk, int64_t b,
                              TileScratch& scratch) {
    if constexpr (kType == WeightType::kQ8_0) {
      tiles.template Load<kWeights>(BlockOf(chunk.panel, chunk.first + b) + kHalf * 64,
                                    kHalves * 64);
    } else {
      tiles.template Load<kWeights>(scratch.weights[b][kHalf], 64);
    }
    tiles.template Zero<kHighDots>();
    tiles.template Load<kHighCodes>(scratch.codes[b][0], kBlockValues);
    tiles.template Multiply<kHighDots, kHighCodes, kWeights>();
    tiles.template Store<kHighDots>(scratch.dots[0][b % kDotRing], kDotOutputs * 4);
    if (!scratch.fine[b]) return;
    tiles.template Zero<kLowDots>();
    tiles.template Load<kLowCodes>(scratch.codes[b][1], kBlockValues);
    tiles.template Multiply<kLowDots, kLowCodes, kWeights>();
    tiles.template Store<kLowDots>(scratch.dots[1][b % kDotRing], kDotOutputs * 4);
  }

  // The same pointer, of which the compiler knows nothing: else it keeps an address for
  // each row of each array, more than there are registers.
  template <class T>
  static inline T* Opaque(T* p) {
    __asm__("" : "+r"(p));
    return p;
  }

  // product = float(dot) * d, then AddBlock.
  template <int kHalf, bool kFine>
  static inline void AddDots(const Chunk& chunk, int64_t b, const TileScratch& scratch,
                             Vec (&acc)[kDotRows]) {
    const int64_t block = chunk.first + b;
    const BlockScales weights = LoadScales<kType>(BlockOf(chunk.panel, block), block);
    // The dots of coarse codes lack a factor of 256, which is exact anywhere.
    const Vec d = kFine ? weights.d[kHalf] : Mul(weights.d[kHalf], Set(256.0f));
    constexpr int64_t kPlaneDots = kDotRing * kDotRows * kDotOutputs;
    const int32_t* dots = Opaque(&scratch.dots[0][b % kDotRing][0][0]);
#pragma GCC unroll 2
    for (int64_t i = 0; i < kDotRows / kTileRows; ++i) {
      const float* scales = Opaque(chunk.x[i].scales + block * kTileRows);
      const float* sums = Opaque(chunk.x[i].scaled_sums + block * kTileRows);
#pragma GCC unroll 8
      for (int64_t r = 0; r < kTileRows; ++r) {
        const int64_t row = i * kTileRows + r;
        __m512i dot = _mm512_load_si512(dots + row * kDotOutputs);
        if constexpr (kFine) {
          const __m512i low = _mm512_load_si512(dots + kPlaneDots + row * kDotOutputs);
          dot = _mm512_add_epi32(_mm512_slli_epi32(dot, 8), low);
        }
        if constexpr (kType == WeightType::kQ8_0) {
          dot = _mm512_sub_epi32(dot, _mm512_set1_epi32(scratch.excess[b][row]));
        }
        acc[row] = AddBlock<kType>(Mul(_mm512_cvtepi32_ps(dot), d), weights.m[kHalf],
                                   scales + r, sums + r, acc[row]);
      }
    }
  }
};

// Rows by 16 on tiles; a rest of up to 8 rows, which would leave half of a tile idle, on
// vectors.
template <WeightType kType, class Tiles>
static void MatmulTiles(const MatmulArgs& args) {
  const int64_t rest = args.rows % kDotRows;
  const int64_t tiled = rest > kTileRows ? args.rows : args.rows - rest;
  if (tiled > 0) {
    Tiles tiles(kTileConfig);
    for (int64_t panel = 0; panel < args.panel_count; ++panel) {
      for (int64_t row = 0; row < tiled; row += kStripRows) {
        const int64_t rows = tiled - row < kStripRows ? tiled - row : kStripRows;
        TileProduct<kType, Tiles>::Strip(tiles, args, panel, row, rows);
      }
    }
  }
  if (tiled == args.rows) return;
  MatmulArgs last = args;
  last.quant = TileOf(args.quant, args.cols, tiled / kTileRows);
  last.rows = args.rows - tiled;
  last.out = args.out + tiled * args.out_stride;
  MatmulQuant<kType>(last);
}

}  // namespace RENGA_ISA
}  // namespace renga
