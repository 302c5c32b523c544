// Vec: 16 floats, as one AVX-512 register. vec_avx2-inl.h has the same over two AVX2
// registers; what both supply is all that the shared *-inl.h bodies use.

#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/exp2-inl.h"

namespace renga {
namespace RENGA_ISA {

using Vec = __m512;

// How many Vec accumulators times queries or rows fit the registers.
constexpr int kScoreVecs = 4;
constexpr int kFloatRows = 8;

static inline __mmask16 FirstLanes(int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xFFFFu : (1u << n) - 1u);
}

static inline Vec Zero() { return _mm512_setzero_ps(); }
static inline Vec Set(float x) { return _mm512_set1_ps(x); }
static inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
static inline Vec Load(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// The first n of 16; the others are 0 and are not touched in memory.
static inline Vec LoadN(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(FirstLanes(n), p);
}
static inline Vec LoadN(const uint16_t* p, int64_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(n), p));
}
static inline void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
static inline void StoreN(float* p, Vec v, int64_t n) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), v);
}
static inline void StoreN(uint16_t* p, Vec v, int64_t n) {
  _mm256_mask_storeu_epi16(p, FirstLanes(n),
                           _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
static inline Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
static inline Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
static inline Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
// a * b + c, rounded once.
static inline Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
// a > b ? a : b.
static inline Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
// Lanes below n from a, the others from b.
static inline Vec First(int64_t n, Vec a, Vec b) {
  return _mm512_mask_blend_ps(FirstLanes(n), b, a);
}

// a[i] + a[i + n] for n = 8, 4, 2, 1.
static inline float FoldSum(Vec v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
static inline float FoldMax(Vec v) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

// 2^n for the n that was rounded into `shifted` (exp2-inl.h).
static inline Vec PowerOfTwo(Vec shifted) {
  const __m512i n =
      _mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(n, 23));
}

static inline Vec Exp2(Vec x) {
  x = _mm512_max_ps(_mm512_set1_ps(kExp2Lowest), x);
  x = _mm512_min_ps(_mm512_set1_ps(kExp2Highest), x);
  const Vec shifted = Add(x, Set(kRoundMagic));
  const Vec f = Sub(x, Sub(shifted, Set(kRoundMagic)));
  Vec p = Set(kExp2C6);
  p = Fma(p, f, Set(kExp2C5));
  p = Fma(p, f, Set(kExp2C4));
  p = Fma(p, f, Set(kExp2C3));
  p = Fma(p, f, Set(kExp2C2));
  p = Fma(p, f, Set(kExp2C1));
  p = Fma(p, f, Set(kExp2C0));
  return Mul(p, PowerOfTwo(shifted));
}

// The larger magnitude of each lane; a NaN is above all.
static inline Vec MaxMagnitude(Vec a, Vec b) {
  const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF);
  return _mm512_castsi512_ps(
      _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), mask),
                       _mm512_and_si512(_mm512_castps_si512(b), mask)));
}

// Bits of the largest |x| of 32 values; a NaN is above all.
static inline uint32_t LargestMagnitude(Vec a, Vec b) {
  const __m512i m = _mm512_castps_si512(MaxMagnitude(a, b));
  const __m256i o =
      _mm256_max_epi32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
  __m128i n = _mm_max_epi32(_mm256_castsi256_si128(o), _mm256_extracti128_si256(o, 1));
  n = _mm_max_epi32(n, _mm_shuffle_epi32(n, 0x4E));
  n = _mm_max_epi32(n, _mm_shuffle_epi32(n, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(n));
}

// code = 256 * high + low, both in [-127, 127]; a code whose low would be -128 becomes
// one more.
static inline void SplitCodes(__m512i code, __m512i& high, __m512i& low) {
  high = _mm512_srai_epi32(_mm512_add_epi32(code, _mm512_set1_epi32(128)), 8);
  low = _mm512_max_epi32(_mm512_sub_epi32(code, _mm512_slli_epi32(high, 8)),
                         _mm512_set1_epi32(-127));
}

// ---- For sampling ------------------------------------------------------------------

// One bit per lane.
static inline uint32_t AtLeast(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}
// Also where one of them is a NaN.
static inline uint32_t NotBelow(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ);
}

// Writes the chosen lanes of v, and first + lane beside them, and returns how many; up to
// 16 places behind them may be overwritten.
static inline int64_t StoreChosen(uint32_t lanes, Vec v, int32_t first, float* values,
                                  int32_t* ids) {
  const __m512i lane =
      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 mask = static_cast<__mmask16>(lanes);
  _mm512_storeu_ps(values, _mm512_maskz_compress_ps(mask, v));
  _mm512_storeu_si512(ids, _mm512_maskz_compress_epi32(
                               mask, _mm512_add_epi32(lane, _mm512_set1_epi32(first))));
  return __builtin_popcount(lanes);
}

// The floats of v, not negative, cut to integers.
static inline void StoreIntegers(uint32_t* p, Vec v, int64_t n) {
  _mm512_mask_storeu_epi32(p, FirstLanes(n), _mm512_cvttps_epi32(v));
}

// Exact sum of the same integers over many vectors.
struct IntegerSum {
  __m512i sum = _mm512_setzero_si512();
  void Add(Vec v) {
    const __m512i x = _mm512_cvttps_epi32(v);
    const __m512i low = _mm512_and_si512(x, _mm512_set1_epi64(0xFFFFFFFF));
    sum = _mm512_add_epi64(sum, _mm512_add_epi64(low, _mm512_srli_epi64(x, 32)));
  }
  uint64_t Total() const { return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum)); }
};

// 16 sums in double precision, lane by lane.
struct DoubleSum {
  __m512d low = _mm512_setzero_pd();   // Lanes 0 to 7.
  __m512d high = _mm512_setzero_pd();  // Lanes 8 to 15.
  void Add(Vec v) {
    low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(v)));
    high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
  }
  void Store(double (&lanes)[16]) const {
    _mm512_storeu_pd(lanes, low);
    _mm512_storeu_pd(lanes + 8, high);
  }
};

}  // namespace RENGA_ISA
}  // namespace renga
