// Exact dots of int8 KV pages on AVX2. VPMADDUBSW would saturate with codes up to 255:
// the bytes are widened to 16 bits by their even and odd places, so that a lane of 32
// bits holds channels (or positions) 0 and 2, then 1 and 3, of one output; a query's
// codes lie in that order and VPMADDWD takes them whole. Included after vec_avx2-inl.h.
//
// No sum leaves 32 bits: 256 channels * 255 * 32512 < 2^31.

#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/int8_dots-inl.h"
#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

constexpr int kDotQueries = 3;  // At a time: 6 sums, 4 operands, 2 codes.

// Codes of one query, or of its probabilities; of each four in the order 0, 2, 1, 3.
struct DotCodes {
  alignas(32) int16_t codes[kMaxHeadDim];
};

static inline __m256i RoundLow(__m256 x, float inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(inverse)));
}

static inline void StoreCodes(__m256i lo, __m256i hi, int64_t at, DotCodes& codes) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xD8);
  _mm256_store_si256(reinterpret_cast<__m256i*>(codes.codes + at),
                     _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(packed, 0xD8), 0xD8));
}

// One more where the low plane would be -128.
static inline __m256i FitPlanes(__m256i code) {
  const __m256i low = _mm256_and_si256(code, _mm256_set1_epi32(255));
  return _mm256_sub_epi32(code, _mm256_cmpeq_epi32(low, _mm256_set1_epi32(128)));
}

// 16 codes round_to_even(x * inverse) from `at` on.
static inline void StoreSigned(Vec x, float inverse, int64_t at, DotCodes& codes) {
  StoreCodes(FitPlanes(RoundLow(x.lo, inverse)), FitPlanes(RoundLow(x.hi, inverse)), at,
             codes);
}

// The same for x >= 0 and codes up to 32767.
static inline void StoreUnsigned(Vec x, float inverse, int64_t at, DotCodes& codes) {
  StoreCodes(RoundLow(x.lo, inverse), RoundLow(x.hi, inverse), at, codes);
}

static inline __m256i BroadcastTwo(const int16_t* codes) {
  int32_t two;
  __builtin_memcpy(&two, codes, 4);
  return _mm256_set1_epi32(two);
}

static inline __m256i LoadPage(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Even and odd bytes of one vector, as 16 bits.
struct Widened {
  __m256i even;
  __m256i odd;
};

static inline Widened WidenUnsigned(__m256i bytes) {
  return {_mm256_and_si256(bytes, _mm256_set1_epi16(255)), _mm256_srli_epi16(bytes, 8)};
}
static inline Widened WidenSigned(__m256i bytes) {
  return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
}

static inline __m256i AddDots(__m256i acc, const Widened& bytes, __m256i even,
                              __m256i odd) {
  acc = _mm256_add_epi32(acc, _mm256_madd_epi16(bytes.even, even));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(bytes.odd, odd));
}

// scores[n][t] = fma(float(dot), s, base) for the positions 8 g + r and 16 + 8 g + r of
// half `half`, r = 0..7.
template <int kQueries>
static inline void KeyColumn(const KeyDots& keys, int64_t half, int64_t g) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const int64_t start = half * keys.hd * 16 + g * 32;
  const uint8_t* high = keys.page + start;
  const uint8_t* low = high + keys.hd * 32;
  __m256i acc[kQueries][2];
  for (int n = 0; n < kQueries; ++n) acc[n][0] = acc[n][1] = _mm256_setzero_si256();
  for (int64_t c = 0; c < keys.hd; c += 4) {
    const __m256i h = LoadPage(high + c * 16);
    const __m256i l = LoadPage(low + c * 16);
    const __m256i first = _mm256_or_si256(
        _mm256_slli_epi16(_mm256_and_si256(h, nibble), 4), _mm256_and_si256(l, nibble));
    const __m256i second =
        _mm256_or_si256(_mm256_andnot_si256(nibble, h),
                        _mm256_and_si256(_mm256_srli_epi16(l, 4), nibble));
    const Widened a = WidenUnsigned(first);
    const Widened b = WidenUnsigned(second);
    if (keys.next != nullptr && g == 0) {
      __builtin_prefetch(keys.next + start + c * 16);
      __builtin_prefetch(keys.next + start + keys.hd * 32 + c * 16);
    }
#pragma GCC unroll 3
    for (int n = 0; n < kQueries; ++n) {
      const __m256i even = BroadcastTwo(keys.codes[n].codes + c);
      const __m256i odd = BroadcastTwo(keys.codes[n].codes + c + 2);
      acc[n][0] = AddDots(acc[n][0], a, even, odd);
      acc[n][1] = AddDots(acc[n][1], b, even, odd);
    }
  }
  for (int n = 0; n < kQueries; ++n) {
    const __m256 s = _mm256_set1_ps(keys.s[n]);
    const __m256 base = _mm256_set1_ps(keys.base[n]);
    for (int b = 0; b < 2; ++b) {
      _mm256_storeu_ps(keys.scores[n] + half * 32 + b * 16 + g * 8,
                       _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[n][b]), s, base));
    }
  }
}

template <int kQueries>
static void ScoreKeys(const KeyDots& keys) {
  for (int64_t half = 0; half < 2; ++half) {
    KeyColumn<kQueries>(keys, half, 0);
    KeyColumn<kQueries>(keys, half, 1);
  }
}

// o[n][c] = float(dot) * z for 16 channels from c on.
template <int kQueries>
static void AddValues(const ValueDots& values) {
  for (int64_t c = 0; c < values.hd; c += 16) {
    __m256i acc[kQueries][2];
    for (int n = 0; n < kQueries; ++n) acc[n][0] = acc[n][1] = _mm256_setzero_si256();
    for (int64_t t = 0; t < kChunkPositions; t += 4) {
      const int64_t at = c * kChunkPositions + t * 16;
      const Widened a = WidenSigned(LoadPage(values.values + at));
      const Widened b = WidenSigned(LoadPage(values.values + at + 32));
      if (values.next != nullptr) __builtin_prefetch(values.next + at);
#pragma GCC unroll 3
      for (int n = 0; n < kQueries; ++n) {
        const __m256i even = BroadcastTwo(values.codes[n].codes + t);
        const __m256i odd = BroadcastTwo(values.codes[n].codes + t + 2);
        acc[n][0] = AddDots(acc[n][0], a, even, odd);
        acc[n][1] = AddDots(acc[n][1], b, even, odd);
      }
    }
    for (int n = 0; n < kQueries; ++n) {
      const Vec dot = {_mm256_cvtepi32_ps(acc[n][0]), _mm256_cvtepi32_ps(acc[n][1])};
      Store(values.o[n] + c, Mul(dot, Set(values.z[n])));
    }
  }
}

static inline const DotSteps& DotStepsFor(int queries) {
  static constexpr DotSteps kSteps[kDotQueries] = {{ScoreKeys<1>, AddValues<1>},
                                                   {ScoreKeys<2>, AddValues<2>},
                                                   {ScoreKeys<3>, AddValues<3>}};
  return kSteps[queries - 1];
}

}  // namespace RENGA_ISA
}  // namespace renga
