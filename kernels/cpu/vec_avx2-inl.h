// Vec: 16 floats, as two AVX2 registers. See vec_avx512-inl.h.

#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/exp2-inl.h"

namespace renga {
namespace RENGA_ISA {

struct Vec {
  __m256 lo;
  __m256 hi;
};

constexpr int kScoreVecs = 1;
constexpr int kFloatRows = 3;

// All ones in the lanes below n; n may be negative or above 8.
static inline __m256i FirstLanes8(int64_t n) {
  const int count = static_cast<int>(n < 0 ? 0 : n > 8 ? 8 : n);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline Vec Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline Vec Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline Vec Load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline Vec Load(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
static inline Vec LoadN(const float* p, int64_t n) {
  return {_mm256_maskload_ps(p, FirstLanes8(n)),
          _mm256_maskload_ps(p + 8, FirstLanes8(n - 8))};
}
static inline Vec LoadN(const uint16_t* p, int64_t n) {
  uint16_t lanes[16] = {};
  for (int64_t i = 0; i < n && i < 16; ++i) lanes[i] = p[i];
  return Load(lanes);
}
static inline void Store(float* p, Vec v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
static inline void StoreN(float* p, Vec v, int64_t n) {
  _mm256_maskstore_ps(p, FirstLanes8(n), v.lo);
  _mm256_maskstore_ps(p + 8, FirstLanes8(n - 8), v.hi);
}
static inline void StoreN(uint16_t* p, Vec v, int64_t n) {
  uint16_t lanes[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes),
                   _mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes + 8),
                   _mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT));
  for (int64_t i = 0; i < n && i < 16; ++i) p[i] = lanes[i];
}

static inline Vec Add(Vec a, Vec b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline Vec Sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline Vec Mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline Vec Div(Vec a, Vec b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline Vec Fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline Vec Max(Vec a, Vec b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static inline Vec First(int64_t n, Vec a, Vec b) {
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(FirstLanes8(n))),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(FirstLanes8(n - 8)))};
}

static inline float FoldSum(Vec v) {
  const __m256 a = _mm256_add_ps(v.lo, v.hi);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
static inline float FoldMax(Vec v) {
  const __m256 a = _mm256_max_ps(v.lo, v.hi);
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

static inline __m256 PowerOfTwo(__m256 shifted) {
  const __m256i n =
      _mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(n, 23));
}

static inline Vec PowerOfTwo(Vec shifted) {
  return {PowerOfTwo(shifted.lo), PowerOfTwo(shifted.hi)};
}

static inline Vec Exp2(Vec x) {
  const Vec lowest = Set(kExp2Lowest);
  const Vec highest = Set(kExp2Highest);
  x = {_mm256_max_ps(lowest.lo, x.lo), _mm256_max_ps(lowest.hi, x.hi)};
  x = {_mm256_min_ps(highest.lo, x.lo), _mm256_min_ps(highest.hi, x.hi)};
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

static inline __m256i Magnitude(__m256 x) {
  return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF));
}

static inline Vec MaxMagnitude(Vec a, Vec b) {
  return {_mm256_castsi256_ps(_mm256_max_epi32(Magnitude(a.lo), Magnitude(b.lo))),
          _mm256_castsi256_ps(_mm256_max_epi32(Magnitude(a.hi), Magnitude(b.hi)))};
}

static inline uint32_t LargestMagnitude(Vec a, Vec b) {
  const __m256i m = _mm256_max_epi32(_mm256_max_epi32(Magnitude(a.lo), Magnitude(a.hi)),
                                     _mm256_max_epi32(Magnitude(b.lo), Magnitude(b.hi)));
  __m128i n = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  n = _mm_max_epi32(n, _mm_shuffle_epi32(n, 0x4E));
  n = _mm_max_epi32(n, _mm_shuffle_epi32(n, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(n));
}

static inline int32_t SumLanes(__m256i v) {
  __m128i n = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  n = _mm_add_epi32(n, _mm_shuffle_epi32(n, 0x4E));
  n = _mm_add_epi32(n, _mm_shuffle_epi32(n, 0xB1));
  return _mm_cvtsi128_si32(n);
}

// 32 values of four vectors as int8, in order.
static inline void StorePlane(const __m256i (&values)[4], int8_t* plane) {
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(values[0], values[1]),
                                            _mm256_packs_epi32(values[2], values[3]));
  // The packs work inside 128-bit lanes: put the groups of 4 back in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(plane),
                      _mm256_permutevar8x32_epi32(packed, order));
}

// codes[0..32) high plane, [32..64) low plane; returns the sum of the codes.
static inline int32_t RoundCodes(Vec a, Vec b, float inverse, int8_t* codes) {
  const __m256 s = _mm256_set1_ps(inverse);
  const __m256 x[4] = {a.lo, a.hi, b.lo, b.hi};
  __m256i high[4];
  __m256i low[4];
  __m256i sum = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    const __m256i code = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], s));
    high[i] = _mm256_srai_epi32(_mm256_add_epi32(code, _mm256_set1_epi32(128)), 8);
    const __m256i shifted = _mm256_slli_epi32(high[i], 8);
    low[i] = _mm256_max_epi32(_mm256_sub_epi32(code, shifted), _mm256_set1_epi32(-127));
    sum = _mm256_add_epi32(sum, _mm256_add_epi32(shifted, low[i]));
  }
  StorePlane(high, codes);
  StorePlane(low, codes + 32);
  return SumLanes(sum);
}

// The same with a low plane of zeros: codes are multiples of 256.
static inline int32_t RoundHighCodes(Vec a, Vec b, float inverse, int8_t* codes) {
  const __m256 s = _mm256_set1_ps(inverse);
  const __m256 x[4] = {a.lo, a.hi, b.lo, b.hi};
  __m256i high[4];
  __m256i sum = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    high[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], s));
    sum = _mm256_add_epi32(sum, high[i]);
  }
  StorePlane(high, codes);
  __builtin_memset(codes + 32, 0, 32);
  return 256 * SumLanes(sum);
}

// ---- For sampling: see vec_avx512-inl.h --------------------------------------------

static inline uint32_t LaneBits(__m256 low, __m256 high) {
  return static_cast<uint32_t>(_mm256_movemask_ps(low)) |
         static_cast<uint32_t>(_mm256_movemask_ps(high)) << 8;
}
static inline uint32_t AtLeast(Vec a, Vec b) {
  return LaneBits(_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ),
                  _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ));
}
static inline uint32_t NotBelow(Vec a, Vec b) {
  return LaneBits(_mm256_cmp_ps(a.lo, b.lo, _CMP_NLT_UQ),
                  _mm256_cmp_ps(a.hi, b.hi, _CMP_NLT_UQ));
}

static inline int64_t StoreChosen(uint32_t lanes, Vec v, int32_t first, float* values,
                                  int32_t* ids) {
  alignas(32) float lane_values[16];
  _mm256_store_ps(lane_values, v.lo);
  _mm256_store_ps(lane_values + 8, v.hi);
  int64_t n = 0;
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    values[n] = lane_values[lane];
    ids[n++] = first + lane;
  }
  return n;
}

static inline void StoreIntegers(uint32_t* p, Vec v, int64_t n) {
  _mm256_maskstore_epi32(reinterpret_cast<int*>(p), FirstLanes8(n),
                         _mm256_cvttps_epi32(v.lo));
  _mm256_maskstore_epi32(reinterpret_cast<int*>(p) + 8, FirstLanes8(n - 8),
                         _mm256_cvttps_epi32(v.hi));
}

struct IntegerSum {
  __m256i sum = _mm256_setzero_si256();
  void AddHalf(__m256 half) {
    const __m256i x = _mm256_cvttps_epi32(half);
    const __m256i low = _mm256_and_si256(x, _mm256_set1_epi64x(0xFFFFFFFF));
    sum = _mm256_add_epi64(sum, _mm256_add_epi64(low, _mm256_srli_epi64(x, 32)));
  }
  void Add(Vec v) {
    AddHalf(v.lo);
    AddHalf(v.hi);
  }
  uint64_t Total() const {
    alignas(32) uint64_t lanes[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
  }
};

struct DoubleSum {
  __m256d sums[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(),
                     _mm256_setzero_pd()};
  void Add(Vec v) {
    const __m128 quarters[4] = {
        _mm256_castps256_ps128(v.lo), _mm256_extractf128_ps(v.lo, 1),
        _mm256_castps256_ps128(v.hi), _mm256_extractf128_ps(v.hi, 1)};
    for (int i = 0; i < 4; ++i) {
      sums[i] = _mm256_add_pd(sums[i], _mm256_cvtps_pd(quarters[i]));
    }
  }
  void Store(double (&lanes)[16]) const {
    for (int i = 0; i < 4; ++i) _mm256_storeu_pd(lanes + i * 4, sums[i]);
  }
};

}  // namespace RENGA_ISA
}  // namespace renga
