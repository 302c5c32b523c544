// Products with Q4_1, Q4_K and Q8_0 weights on AVX2: up to 4 rows of 16-bit codes times
// 16 weight rows at a time, by VPMADDUBSW on each plane of the codes. Included after
// vec_avx2-inl.h and matmul_float-inl.h.
//
// No loop over j or halves is unrolled: GCC then hoists the loads and spills the sums (60
// instead of 78 GMAC/s).
//
// Nothing saturates. Q4_1 and Q4_K: a sum of two products is at most 15 * 127 * 2 = 3810,
// and 8 of them fit 16 bits. Q8_0: |w| (unsigned, up to 128) times x with the sign of w,
// at most 128 * 127 * 2 = 32512; widened to 32 bits at once.

#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

constexpr int kQuantRows = 4;

static inline __m256i BroadcastCodes(const int8_t* codes) {
  int32_t four;
  __builtin_memcpy(&four, codes, 4);
  return _mm256_set1_epi32(four);
}

static inline __m256i LoadBytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

static inline __m256i WidenPairs(__m256i pairs) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// Exact dots of one block and plane: 16 weight rows (`half`) times kRows rows.
template <int kRows>
struct Dots {
  __m256i part[2][kRows];  // Weight rows 0..7 and 8..15 of the half.
};

template <int kRows>
static inline void DotsQ4_1(const uint8_t* w, const int8_t* codes, int half,
                            Dots<kRows>& dots) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m128i shift = _mm_cvtsi32_si128(half * 4);
  for (int r = 0; r < kRows; ++r) {
    dots.part[0][r] = dots.part[1][r] = _mm256_setzero_si256();
  }
#pragma GCC unroll 1
  for (int j = 0; j < 8; ++j) {
    const __m256i w0 =
        _mm256_and_si256(_mm256_srl_epi16(LoadBytes(w + j * 64), shift), nibble);
    const __m256i w1 =
        _mm256_and_si256(_mm256_srl_epi16(LoadBytes(w + j * 64 + 32), shift), nibble);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256i x = BroadcastCodes(codes + j * 32 + r * 4);
      dots.part[0][r] = _mm256_add_epi16(dots.part[0][r], _mm256_maddubs_epi16(w0, x));
      dots.part[1][r] = _mm256_add_epi16(dots.part[1][r], _mm256_maddubs_epi16(w1, x));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    dots.part[0][r] = WidenPairs(dots.part[0][r]);
    dots.part[1][r] = WidenPairs(dots.part[1][r]);
  }
}

template <int kRows>
static inline void DotsQ8_0(const uint8_t* w, const int8_t* codes, int half,
                            Dots<kRows>& dots) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
  for (int r = 0; r < kRows; ++r) {
    dots.part[0][r] = dots.part[1][r] = _mm256_setzero_si256();
  }
#pragma GCC unroll 1
  for (int j = 0; j < 8; ++j) {
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part) {
      const __m256i q =
          _mm256_xor_si256(LoadBytes(w + j * 128 + half * 64 + part * 32), flip);
      const __m256i magnitude = _mm256_abs_epi8(q);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256i x = _mm256_sign_epi8(BroadcastCodes(codes + j * 32 + r * 4), q);
        dots.part[part][r] = _mm256_add_epi32(
            dots.part[part][r], WidenPairs(_mm256_maddubs_epi16(magnitude, x)));
      }
    }
  }
}

template <WeightType kType, int kRows>
static inline void PlaneDots(const uint8_t* w, const int8_t* codes, int half,
                             Dots<kRows>& dots) {
  if constexpr (kType == WeightType::kQ8_0) {
    DotsQ8_0<kRows>(w, codes, half, dots);
  } else {
    DotsQ4_1<kRows>(w, codes, half, dots);
  }
}

static inline Vec LoadHalves(const uint8_t* p) {
  return Load(reinterpret_cast<const uint16_t*>(p));
}

static inline Vec LoadCounts(const uint8_t* p) {
  const auto eight = [](const uint8_t* bytes) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
  };
  return {eight(p), eight(p + 8)};
}

// Of the 16 weight rows of a half in one block: value = step * code + least.
struct Steps {
  Vec step;
  Vec least;  // Not of Q8_0.
};

template <WeightType kType>
static inline Steps StepsOf(const uint8_t* panel, int64_t b, int half) {
  if constexpr (kType == WeightType::kQ8_0) {
    const uint8_t* w = panel + b * kQ8_0PanelBlockBytes;
    return {LoadHalves(w + 1024 + half * 32), Zero()};
  } else if constexpr (kType == WeightType::kQ4_1) {
    const uint8_t* w = panel + b * kQ4_1PanelBlockBytes;
    return {LoadHalves(w + 512 + half * 32), LoadHalves(w + 576 + half * 32)};
  } else {
    const uint8_t* super = panel + Q4KSuperOffset(b) + half * 32;
    const uint8_t* w = panel + Q4KBlockOffset(b) + half * 16;
    // (-dmin) * min has the bits of -(dmin * min).
    const Vec minus_dmin = Mul(LoadHalves(super + 64), Set(-1.0f));
    return {Mul(LoadHalves(super), LoadCounts(w + 512)),
            Mul(minus_dmin, LoadCounts(w + 544))};
  }
}

template <WeightType kType>
static inline const uint8_t* WeightsAt(const uint8_t* panel, int64_t b) {
  if constexpr (kType == WeightType::kQ8_0) return panel + b * kQ8_0PanelBlockBytes;
  if constexpr (kType == WeightType::kQ4_1) return panel + b * kQ4_1PanelBlockBytes;
  return panel + Q4KBlockOffset(b);
}

template <WeightType kType, int kRows>
static inline void QuantBlock(const uint8_t* panel, int64_t b, const QuantRows& x,
                              int half, Vec (&acc)[kRows][2]) {
  constexpr int64_t kPlane = kTileBlockCodes / kCodePlanes;
  const uint8_t* w = WeightsAt<kType>(panel, b);
  Dots<kRows> dots;
  PlaneDots<kType, kRows>(w, x.codes, half, dots);
  for (int r = 0; r < kRows; ++r) {
    for (int part = 0; part < 2; ++part) {
      dots.part[part][r] = _mm256_slli_epi32(dots.part[part][r], 8);
    }
  }
  if (*x.fine != 0) {
    Dots<kRows> low;
    PlaneDots<kType, kRows>(w, x.codes + kPlane, half, low);
    for (int r = 0; r < kRows; ++r) {
      for (int part = 0; part < 2; ++part) {
        dots.part[part][r] = _mm256_add_epi32(dots.part[part][r], low.part[part][r]);
      }
    }
  }
  const Steps steps = StepsOf<kType>(panel, b, half);
  for (int r = 0; r < kRows; ++r) {
    const Vec dot = {_mm256_cvtepi32_ps(dots.part[0][r]),
                     _mm256_cvtepi32_ps(dots.part[1][r])};
    acc[r][half] = Fma(Mul(dot, steps.step), Set(x.scales[r]), acc[r][half]);
    if constexpr (kType != WeightType::kQ8_0) {
      acc[r][half] = Fma(steps.least, Set(x.scaled_sums[r]), acc[r][half]);
    }
  }
}

// Rows `first_row`.. of one tile.
template <WeightType kType, int kRows>
static void QuantTile(const MatmulArgs& args, const uint8_t* panel, int64_t first_row,
                      float* out, int64_t outputs) {
  Vec acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = Zero();
  const QuantRows tile = TileOf(args.quant, args.cols, first_row / kTileRows);
  const int64_t lane = first_row % kTileRows;
  for (int64_t b = 0; b < args.cols / kBlockValues; ++b) {
    const QuantRows x = {tile.codes + b * kTileBlockCodes + lane * 4,
                         tile.scales + b * kTileRows + lane,
                         tile.scaled_sums + b * kTileRows + lane, nullptr, tile.fine + b};
#pragma GCC unroll 1
    for (int half = 0; half < 2; ++half) {
      QuantBlock<kType, kRows>(panel, b, x, half, acc);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    StoreOutputs(out + (first_row + r) * args.out_stride, acc[r][0], acc[r][1], outputs,
                 args.add);
  }
}

template <WeightType kType>
static void MatmulQuant(const MatmulArgs& args) {
  using Tile = void (*)(const MatmulArgs&, const uint8_t*, int64_t, float*, int64_t);
  static constexpr Tile kTiles[kQuantRows] = {QuantTile<kType, 1>, QuantTile<kType, 2>,
                                              QuantTile<kType, 3>, QuantTile<kType, 4>};
  const int64_t panel_bytes = PanelBytes(kType, args.cols);
  for (int64_t p = 0; p < args.panel_count; ++p) {
    for (int64_t row = 0; row < args.rows; row += kQuantRows) {
      const int64_t rows = args.rows - row < kQuantRows ? args.rows - row : kQuantRows;
      kTiles[rows - 1](args, args.panels + p * panel_bytes, row,
                       args.out + p * kPanelRows, args.outputs - p * kPanelRows);
    }
  }
}

}  // namespace RENGA_ISA
}  // namespace renga
