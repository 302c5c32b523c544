// Codes of activations on AVX-512, a tile of 8 rows at a time: the scales of a block are
// one vector, and the codes reach their interleaved places by shuffles, a cache line at a
// time. The definition is in ops_portable.cc; included after vec_avx512-inl.h.
//
// Two passes: the largest values of all blocks, which wait where the scales will stand,
// and the codes. About 10 operations per row and block for coarse codes.

#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

static inline __m256i MaxPairs(__m256i a, __m256i b) {
  return _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

// Bits of max|x| over the 32 values of each row at x: lane r belongs to row r.
static inline __m256i RowMaxima(const float* x, int64_t stride, int64_t rows) {
  if (rows == 1) {
    const uint32_t only = LargestMagnitude(Load(x), Load(x + 16));
    return _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int32_t>(only)));
  }
  __m256i max[kTileRows];
#pragma GCC unroll 8
  for (int64_t r = 0; r < kTileRows; ++r) {
    max[r] = _mm256_setzero_si256();
    if (r >= rows) continue;
    const float* row = x + r * stride;
    const __m512i both = _mm512_castps_si512(MaxMagnitude(Load(row), Load(row + 16)));
    max[r] = _mm256_max_epi32(_mm512_castsi512_si256(both),
                              _mm512_extracti64x4_epi64(both, 1));
  }
  // Inside each half of a vector: the maxima of rows 0..3, and of rows 4..7.
  __m256i fours[2];
  for (int i = 0; i < 2; ++i) {
    const __m256i a = MaxPairs(max[4 * i], max[4 * i + 1]);
    const __m256i b = MaxPairs(max[4 * i + 2], max[4 * i + 3]);
    fours[i] = _mm256_max_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
  }
  return _mm256_max_epi32(_mm256_permute2x128_si256(fours[0], fours[1], 0x20),
                          _mm256_permute2x128_si256(fours[0], fours[1], 0x31));
}

// int8 codes of two rows, 32 each: 128-bit lane i holds values 4 i and 16 + 4 i of the
// first, then of the second row, four at a time.
static inline __m512i PackRows(const __m512i (&first)[2], const __m512i (&second)[2]) {
  return _mm512_packs_epi16(_mm512_packs_epi32(first[0], first[1]),
                            _mm512_packs_epi32(second[0], second[1]));
}

// Writes one plane, [k4 0..7][row 0..7][4], and returns the sum of each row's codes.
static inline __m256i StorePlane(const __m512i (&pairs)[4], int8_t* plane) {
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  __m512i sums = _mm512_setzero_si512();
  for (int half = 0; half < 2; ++half) {
    // Lane i: k4 = 4 half + i of rows 0..3, and of rows 4..7.
    __m512i rows[2];
    for (int i = 0; i < 2; ++i) {
      const __m512 a = _mm512_castsi512_ps(pairs[2 * i]);
      const __m512 b = _mm512_castsi512_ps(pairs[2 * i + 1]);
      rows[i] = _mm512_castps_si512(half == 0 ? _mm512_shuffle_ps(a, b, 0x88)
                                              : _mm512_shuffle_ps(a, b, 0xDD));
    }
    const __m512i out[2] = {_mm512_permutex2var_epi64(rows[0], first, rows[1]),
                            _mm512_permutex2var_epi64(rows[0], second, rows[1])};
    for (int i = 0; i < 2; ++i) {
      _mm512_storeu_si512(plane + half * 128 + i * 64, out[i]);
      sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), out[i]);
    }
  }
  return _mm256_add_epi32(_mm512_castsi512_si256(sums),
                          _mm512_extracti64x4_epi64(sums, 1));
}

// What the codes of the 8 rows of one block are made with.
struct BlockFactors {
  alignas(32) float inverse[kTileRows];
  uint32_t live;  // Rows with codes other than 0.
  uint32_t fine;
  int64_t rows;  // Those behind are not live.
};

// Integers nearest to x * inverse; zeros for a row without codes.
static inline void RoundRow(const float* x, int64_t r, const BlockFactors& factors,
                            __m512i (&codes)[2]) {
  const __mmask16 mask = (factors.live >> r & 1) != 0 ? 0xFFFF : 0;
  const Vec inverse = Set(factors.inverse[r]);
  codes[0] = _mm512_cvtps_epi32(Mul(_mm512_maskz_loadu_ps(mask, x), inverse));
  codes[1] = _mm512_cvtps_epi32(Mul(_mm512_maskz_loadu_ps(mask, x + 16), inverse));
}

static inline __m256i CoarseCodes(const float* x, int64_t stride,
                                  const BlockFactors& factors, int8_t* codes) {
  __m512i pairs[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pairs[i] = _mm512_setzero_si512();
    if (2 * i >= factors.rows) continue;
    __m512i rows[2][2];
    RoundRow(x + 2 * i * stride, 2 * i, factors, rows[0]);
    RoundRow(x + (2 * i + 1) * stride, 2 * i + 1, factors, rows[1]);
    pairs[i] = PackRows(rows[0], rows[1]);
  }
  for (int64_t i = 0; i < 256; i += 64) {
    _mm512_storeu_si512(codes + 256 + i, _mm512_setzero_si512());
  }
  return _mm256_slli_epi32(StorePlane(pairs, codes), 8);
}

// One row in two planes; the low one of a coarse row is 0.
static inline void SplitRow(const float* x, int64_t r, const BlockFactors& factors,
                            __m512i (&high)[2], __m512i (&low)[2]) {
  RoundRow(x, r, factors, high);
  low[0] = low[1] = _mm512_setzero_si512();
  if ((factors.fine >> r & 1) == 0) return;
  for (int i = 0; i < 2; ++i) SplitCodes(high[i], high[i], low[i]);
}

static inline __m256i MixedCodes(const float* x, int64_t stride,
                                 const BlockFactors& factors, int8_t* codes) {
  __m512i high_pairs[4];
  __m512i low_pairs[4];
  for (int i = 0; i < 4; ++i) {
    high_pairs[i] = low_pairs[i] = _mm512_setzero_si512();
    if (2 * i >= factors.rows) continue;
    __m512i high[2][2];
    __m512i low[2][2];
    for (int j = 0; j < 2; ++j) {
      SplitRow(x + (2 * i + j) * stride, 2 * i + j, factors, high[j], low[j]);
    }
    high_pairs[i] = PackRows(high[0], high[1]);
    low_pairs[i] = PackRows(low[0], low[1]);
  }
  const __m256i high = StorePlane(high_pairs, codes);
  const __m256i low = StorePlane(low_pairs, codes + 256);
  return _mm256_add_epi32(_mm256_slli_epi32(high, 8), low);
}

// Block b of the tile: `max` and `limit` of each row.
static inline void QuantiseBlock(const float* x, int64_t stride, int64_t rows,
                                 __m256 limit, const QuantRows& block) {
  const __m256 max = _mm256_loadu_ps(block.scales);
  const __mmask8 finite =
      _mm256_cmp_ps_mask(max, _mm256_set1_ps(BitsFloat(0x7F800000u)), _CMP_LT_OQ);
  const __mmask8 live =
      _mm256_mask_cmp_ps_mask(finite, max, _mm256_set1_ps(1e-30f), _CMP_GE_OQ);
  const __mmask8 coarse = _mm256_cmp_ps_mask(_mm256_mul_ps(max, max), limit, _CMP_LT_OQ);
  const __m256 largest = _mm256_mask_blend_ps(coarse, _mm256_set1_ps(kLargestCode),
                                              _mm256_set1_ps(kLargestPlane));
  __m256 scale = _mm256_maskz_div_ps(live, max, _mm256_set1_ps(kLargestCode));
  scale = _mm256_mask_blend_ps(finite, _mm256_set1_ps(BitsFloat(0x7FC00000u)), scale);
  BlockFactors factors;
  _mm256_store_ps(factors.inverse, _mm256_maskz_div_ps(live, largest, max));
  factors.live = live;
  factors.rows = rows;
  factors.fine = ~static_cast<uint32_t>(coarse) & ((1u << rows) - 1);
  const __m256i sums = factors.fine == 0 ? CoarseCodes(x, stride, factors, block.codes)
                                         : MixedCodes(x, stride, factors, block.codes);
  *block.fine = static_cast<uint8_t>(factors.fine);
  _mm256_storeu_ps(block.scales, scale);
  _mm256_storeu_ps(block.scaled_sums, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(sums)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(block.code_sums), sums);
}

static void QuantiseTile(const QuantiseArgs& args, int64_t first, int64_t rows) {
  const int64_t blocks = args.cols / kBlockValues;
  const float* x = args.x + first * args.x_stride;
  const QuantRows tile = TileOf(args.out, args.cols, first / kTileRows);
  __m256 squares = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
    const __m256 max =
        _mm256_castsi256_ps(RowMaxima(x + b * kBlockValues, args.x_stride, rows));
    _mm256_storeu_ps(tile.scales + b * kTileRows, max);
    squares = _mm256_add_ps(squares, _mm256_mul_ps(max, max));
  }
  __m256 limit = _mm256_setzero_ps();
  if (args.coarse > 0.0f) {
    const __m256 count = _mm256_set1_ps(static_cast<float>(blocks));
    limit = _mm256_mul_ps(_mm256_set1_ps(args.coarse), _mm256_div_ps(squares, count));
  }
  for (int64_t b = 0; b < blocks; ++b) {
    QuantiseBlock(x + b * kBlockValues, args.x_stride, rows, limit,
                  {tile.codes + b * kTileBlockCodes, tile.scales + b * kTileRows,
                   tile.scaled_sums + b * kTileRows, tile.code_sums + b * kTileRows,
                   tile.fine + b});
  }
}

static void QuantiseRows(const QuantiseArgs& args) {
  for (int64_t row = 0; row < args.rows; row += kTileRows) {
    const int64_t rows = args.rows - row;
    QuantiseTile(args, row, rows < kTileRows ? rows : kTileRows);
  }
}

}  // namespace RENGA_ISA
}  // namespace renga
