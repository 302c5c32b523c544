// Products with Q4_1 and Q8_0 weights on AVX-512 VNNI: up to 8 rows of 16-bit codes
// times 32 weight rows, two VPDPBUSD per 16 outputs and 4 k. Included after
// vec_avx512-inl.h and matmul_float-inl.h.
//
// Port count per 32 k and row: 16 dot products for a coarse block, 32 and 2 shifts for a
// fine one; 8 (Q4_1) float operations. With 8 rows the float accumulators spill and that
// costs nothing: the weights are passed over fewer times.

#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

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
  if constexpr (kType == WeightType::kQ4_1) AddPlaneQ4_1<kRows>(w, codes, dots);
  if constexpr (kType == WeightType::kQ8_0) AddPlaneQ8_0<kRows>(w, codes, dots);
}

// Fine: dot = 256 * (dot of the high plane) + dot of the low plane, in the same
// accumulators; the weights of a block are read twice, the second time from the
// first-level cache. Coarse: the dot of the high plane alone; its factor of 256 is the
// caller's.
template <WeightType kType, int kRows>
static inline void BlockDots(const uint8_t* w, const int8_t* codes, bool fine,
                             const int32_t* code_sums, Dots<kRows>& dots) {
  constexpr int64_t kPlane = kTileBlockCodes / kCodePlanes;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __m512i start = _mm512_setzero_si512();
    if constexpr (kType == WeightType::kQ8_0) {
      // The weights are stored as q + 128 (unsigned).
      if (!fine) start = _mm512_set1_epi32(-(code_sums[r] / 2));
    }
    dots.half[0][r] = dots.half[1][r] = start;
  }
  AddPlane<kType, kRows>(w, codes, dots);
  if (!fine) return;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    dots.half[0][r] = _mm512_slli_epi32(dots.half[0][r], 8);
    dots.half[1][r] = _mm512_slli_epi32(dots.half[1][r], 8);
    if constexpr (kType == WeightType::kQ8_0) {
      const __m512i excess = _mm512_set1_epi32(128 * code_sums[r]);
      dots.half[0][r] = _mm512_sub_epi32(dots.half[0][r], excess);
      dots.half[1][r] = _mm512_sub_epi32(dots.half[1][r], excess);
    }
  }
  AddPlane<kType, kRows>(w, codes + kPlane, dots);
}

static inline Vec LoadHalves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

template <int kRows>
static inline void Q4_1Tile(const uint8_t* panel, int64_t blocks, const QuantRows& x,
                            Vec (&acc)[kRows][2]) {
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* w = panel + b * kQ4_1PanelBlockBytes;
    Dots<kRows> dots;
    const bool fine = x.fine[b] != 0;
    BlockDots<WeightType::kQ4_1, kRows>(w, x.codes + b * kTileBlockCodes, fine, nullptr,
                                        dots);
    const float* scales = x.scales + b * kTileRows;
    const float* sums = x.scaled_sums + b * kTileRows;
    // dot * (256 * d) has the bits of (256 * dot) * d.
    const Vec unit = Set(fine ? 1.0f : 256.0f);
    const Vec d[2] = {Mul(LoadHalves(w + 512), unit), Mul(LoadHalves(w + 544), unit)};
    const Vec m[2] = {LoadHalves(w + 576), LoadHalves(w + 608)};
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      for (int half = 0; half < 2; ++half) {
        const Vec dot = _mm512_cvtepi32_ps(dots.half[half][r]);
        acc[r][half] = Fma(Mul(dot, d[half]), Set(scales[r]), acc[r][half]);
        acc[r][half] = Fma(m[half], Set(sums[r]), acc[r][half]);
      }
    }
  }
}

template <int kRows>
static inline void Q8_0Tile(const uint8_t* panel, int64_t blocks, const QuantRows& x,
                            Vec (&acc)[kRows][2]) {
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* w = panel + b * kQ8_0PanelBlockBytes;
    Dots<kRows> dots;
    const bool fine = x.fine[b] != 0;
    BlockDots<WeightType::kQ8_0, kRows>(w, x.codes + b * kTileBlockCodes, fine,
                                        x.code_sums + b * kTileRows, dots);
    const float* scales = x.scales + b * kTileRows;
    const Vec unit = Set(fine ? 1.0f : 256.0f);
    const Vec d[2] = {Mul(LoadHalves(w + 1024), unit), Mul(LoadHalves(w + 1056), unit)};
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      for (int half = 0; half < 2; ++half) {
        const Vec dot = _mm512_cvtepi32_ps(dots.half[half][r]);
        acc[r][half] = Fma(Mul(dot, d[half]), Set(scales[r]), acc[r][half]);
      }
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
  if constexpr (kType == WeightType::kQ4_1) Q4_1Tile<kRows>(panel, blocks, x, acc);
  if constexpr (kType == WeightType::kQ8_0) Q8_0Tile<kRows>(panel, blocks, x, acc);
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
