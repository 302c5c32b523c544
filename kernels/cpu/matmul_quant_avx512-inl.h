// Products with Q4_1, Q4_K and Q8_0 weights on AVX-512 VNNI: up to 8 rows of 16-bit codes
// times 32 weight rows, a VPDPBUSD per plane, 16 outputs and 4 k. Included after
// vec_avx512-inl.h and matmul_float-inl.h.
//
// Port count per block of 32 k and 8 rows: 128 dot products, 24 operations that unpack
// nibbles, 48 (Q4_1) of floats: 64 % of the dot products' own limit. A row that is fine
// in a block costs 16 dot products more, and the unpacking again. With 8 rows the float
// accumulators spill and that costs nothing: the weights are passed over fewer times.

#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

constexpr int64_t kPrefetchBytes = 2560;  // How far ahead of the weights in use.

static inline __m512i BroadcastCodes(const int8_t* codes) {
  int32_t four;
  __builtin_memcpy(&four, codes, 4);
  return _mm512_set1_epi32(four);
}

static inline __m512i LoadBytes(const uint8_t* p) {
  return _mm512_loadu_si512(reinterpret_cast<const void*>(p));
}

// Rows of one block: dots of the 16 outputs of each half.
template <int kRows>
struct Dots {
  __m512i half[2][kRows];
};

template <int kRows>
static inline void AddPlaneQ4_1(const uint8_t* w, const int8_t* codes,
                                Dots<kRows>& dots) {
  const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m512i pairs = LoadBytes(w + j * 64);
    const __m512i low = _mm512_and_si512(pairs, nibble);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), nibble);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i x = BroadcastCodes(codes + j * 32 + r * 4);
      dots.half[0][r] = _mm512_dpbusd_epi32(dots.half[0][r], low, x);
      dots.half[1][r] = _mm512_dpbusd_epi32(dots.half[1][r], high, x);
    }
  }
}

template <int kRows>
static inline void AddPlaneQ8_0(const uint8_t* w, const int8_t* codes,
                                Dots<kRows>& dots) {
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m512i w0 = LoadBytes(w + j * 128);
    const __m512i w1 = LoadBytes(w + j * 128 + 64);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i x = BroadcastCodes(codes + j * 32 + r * 4);
      dots.half[0][r] = _mm512_dpbusd_epi32(dots.half[0][r], w0, x);
      dots.half[1][r] = _mm512_dpbusd_epi32(dots.half[1][r], w1, x);
    }
  }
}

template <WeightType kType, int kRows>
static inline void AddPlane(const uint8_t* w, const int8_t* codes, Dots<kRows>& dots) {
  if constexpr (kType == WeightType::kQ8_0) {
    AddPlaneQ8_0<kRows>(w, codes, dots);
  } else {
    AddPlaneQ4_1<kRows>(w, codes, dots);
  }
}

// A float whose last bit counts 1: an integer that is added to its bits, below 2^22 in
// size, is added to its value. A dot product that starts from here needs no conversion:
// fma(value, d, -(kDotOrigin * d)) has the bits of float(dot) * d, as kDotOrigin * d is
// exact for any f16 d (also times a 6-bit scale), and so is the sum before it is rounded.
constexpr float kDotOrigin = 0x1.8p+23f;

// What the dots of row r start from; Q8_0 weights are stored as q + 128.
template <WeightType kType>
static inline __m512i StartOf(int32_t origin, const int32_t* code_sums, int r) {
  if constexpr (kType == WeightType::kQ8_0) {
    return _mm512_set1_epi32(origin - code_sums[r] / 2);
  }
  return _mm512_set1_epi32(origin);
}

// The dots of the high plane alone, on top of `origin`.
template <WeightType kType, int kRows>
static inline void HighDots(const uint8_t* w, const int8_t* codes, int32_t origin,
                            const int32_t* code_sums, Dots<kRows>& dots) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    dots.half[0][r] = dots.half[1][r] = StartOf<kType>(origin, code_sums, r);
  }
  AddPlane<kType, kRows>(w, codes, dots);
}

// dot = 256 * (dot of the high plane) + dot of the low plane. Few fine rows are added one
// by one, many as a whole plane; the weights of the block come from the first-level
// cache.
template <WeightType kType, int kRows>
static inline void FineDots(const uint8_t* w, const int8_t* codes, uint32_t fine,
                            const int32_t* code_sums, Dots<kRows>& dots) {
  constexpr int64_t kPlane = kTileBlockCodes / kCodePlanes;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    // The high plane's part of the 128 that each weight has too much is in the dots of a
    // coarse row already; a fine one's sum is not a multiple of 256.
    const __m512i rest = _mm512_set1_epi32(
        kType == WeightType::kQ8_0 ? 128 * (code_sums[r] - code_sums[r] / 2 * 2) : 0);
    dots.half[0][r] = _mm512_sub_epi32(_mm512_slli_epi32(dots.half[0][r], 8), rest);
    dots.half[1][r] = _mm512_sub_epi32(_mm512_slli_epi32(dots.half[1][r], 8), rest);
  }
  if (kRows > 1 && __builtin_popcount(fine) * 2 > kRows) {
    AddPlane<kType, kRows>(w, codes + kPlane, dots);
    return;
  }
  Dots<kRows> sums = dots;
  for (; fine != 0; fine &= fine - 1) {
    const int r = __builtin_ctz(fine);
    Dots<1> row = {{{sums.half[0][r]}, {sums.half[1][r]}}};
    AddPlane<kType, 1>(w, codes + kPlane + r * 4, row);
    sums.half[0][r] = row.half[0][0];
    sums.half[1][r] = row.half[1][0];
  }
  dots = sums;
}

static inline Vec LoadHalves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

static inline Vec LoadCounts(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// Scales of the 32 weight rows of one block.
struct BlockScales {
  Vec d[2];
  Vec m[2];  // Not of Q8_0.
};

// `w`: the codes of block `block` of its panel.
template <WeightType kType>
static inline BlockScales LoadScales(const uint8_t* w, int64_t block) {
  if constexpr (kType == WeightType::kQ8_0) {
    return {{LoadHalves(w + 1024), LoadHalves(w + 1056)}, {}};
  } else if constexpr (kType == WeightType::kQ4_1) {
    return {{LoadHalves(w + 512), LoadHalves(w + 544)},
            {LoadHalves(w + 576), LoadHalves(w + 608)}};
  } else {
    const uint8_t* super = w - Q4KBlockOffset(block) + Q4KSuperOffset(block);
    BlockScales scales;
    for (int half = 0; half < 2; ++half) {
      // (-dmin) * min has the bits of -(dmin * min).
      const Vec minus_dmin = Mul(LoadHalves(super + 64 + half * 32), Set(-1.0f));
      scales.d[half] =
          Mul(LoadHalves(super + half * 32), LoadCounts(w + 512 + half * 16));
      scales.m[half] = Mul(minus_dmin, LoadCounts(w + 544 + half * 16));
    }
    return scales;
  }
}

// acc = fma(product, s, acc) and, but for Q8_0, acc = fma(m, s * sum, acc).
template <WeightType kType>
static inline Vec AddBlock(Vec product, Vec m, const float* scale, const float* sum,
                           Vec acc) {
  acc = Fma(product, Set(*scale), acc);
  if constexpr (kType != WeightType::kQ8_0) acc = Fma(m, Set(*sum), acc);
  return acc;
}

template <WeightType kType, int kRows>
static inline void QuantBlock(const uint8_t* w, const QuantRows& x, int64_t block,
                              Vec (&acc)[kRows][2]) {
  const int8_t* codes = x.codes + block * kTileBlockCodes;
  const float* scales = x.scales + block * kTileRows;
  const float* sums = x.scaled_sums + block * kTileRows;
  const int32_t* code_sums = x.code_sums + block * kTileRows;
  // Bits of rows behind the last one may be set.
  const uint32_t fine = x.fine[block] & ((1u << kRows) - 1);
  const BlockScales weights = LoadScales<kType>(w, block);
  Dots<kRows> dots;
  if (fine == 0) {
    HighDots<kType, kRows>(w, codes, FloatBits(kDotOrigin), code_sums, dots);
    for (int half = 0; half < 2; ++half) {
      // The codes are multiples of 256.
      const Vec d = Mul(weights.d[half], Set(256.0f));
      const Vec origin = Mul(d, Set(-kDotOrigin));
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec product = Fma(_mm512_castsi512_ps(dots.half[half][r]), d, origin);
        acc[r][half] =
            AddBlock<kType>(product, weights.m[half], scales + r, sums + r, acc[r][half]);
      }
    }
    return;
  }
  HighDots<kType, kRows>(w, codes, 0, code_sums, dots);
  FineDots<kType, kRows>(w, codes, fine, code_sums, dots);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      const Vec product = Mul(_mm512_cvtepi32_ps(dots.half[half][r]), weights.d[half]);
      acc[r][half] =
          AddBlock<kType>(product, weights.m[half], scales + r, sums + r, acc[r][half]);
    }
  }
}

template <WeightType kType, int kRows>
static void QuantTile(const MatmulArgs& args, const uint8_t* panel, int64_t tile,
                      float* out, int64_t outputs) {
  Vec acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = Zero();
  const QuantRows x = TileOf(args.quant, args.cols, tile);
  const int64_t blocks = args.cols / kBlockValues;
  constexpr bool kSuper = kType == WeightType::kQ4_K;
  const int64_t block_bytes =
      kSuper ? kQ4KPanelBlockBytes : PanelBytes(kType, kBlockValues);
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* w = panel + (kSuper ? Q4KBlockOffset(b) : b * block_bytes);
    // The first tile of rows streams the weights from memory, which the hardware alone
    // follows at two thirds of the speed.
    if (tile == 0) {
      for (int64_t i = 0; i < block_bytes; i += 64) {
        __builtin_prefetch(w + i + kPrefetchBytes);
      }
    }
    QuantBlock<kType, kRows>(w, x, b, acc);
  }
  for (int r = 0; r < kRows; ++r) {
    StoreOutputs(out + (tile * kTileRows + r) * args.out_stride, acc[r][0], acc[r][1],
                 outputs, args.add);
  }
}

template <WeightType kType>
static void MatmulQuant(const MatmulArgs& args) {
  using Tile = void (*)(const MatmulArgs&, const uint8_t*, int64_t, float*, int64_t);
  static constexpr Tile kTiles[kTileRows] = {
      QuantTile<kType, 1>, QuantTile<kType, 2>, QuantTile<kType, 3>, QuantTile<kType, 4>,
      QuantTile<kType, 5>, QuantTile<kType, 6>, QuantTile<kType, 7>, QuantTile<kType, 8>};
  const int64_t panel_bytes = PanelBytes(kType, args.cols);
  for (int64_t p = 0; p < args.panel_count; ++p) {
    for (int64_t row = 0; row < args.rows; row += kTileRows) {
      const int64_t rows = args.rows - row < kTileRows ? args.rows - row : kTileRows;
      kTiles[rows - 1](args, args.panels + p * panel_bytes, row / kTileRows,
                       args.out + p * kPanelRows, args.outputs - p * kPanelRows);
    }
  }
}

}  // namespace RENGA_ISA
}  // namespace renga
