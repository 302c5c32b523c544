// Exact dots of int8 KV pages on AVX-512 VNNI. A query's codes lie as two planes of
// bytes, so that 4 of them are one broadcast; each plane has accumulators of its own.
// Included after vec_avx512-inl.h.
//
// Keys: two shifts and two selects join 128 nibbles of each plane to 128 codes (u8), then
// VPDPBUSD with the planes of the query (s8). Values: VPDPBUSD of the planes of the
// probabilities (u8) with the values (s8). No sum leaves 32 bits: 256 channels * 255 *
// 32512 < 2^31.

#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/int8_dots-inl.h"
#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

constexpr int kDotQueries = 4;  // At a time.

// Codes of one query, or of its probabilities: code = 256 * high + low.
struct DotCodes {
  alignas(64) uint8_t high[kMaxHeadDim];
  alignas(64) uint8_t low[kMaxHeadDim];
};

// 16 codes round_to_even(x * inverse) from `at` on; both planes in [-127, 127].
static inline void StoreSigned(Vec x, float inverse, int64_t at, DotCodes& codes) {
  const __m512i code = _mm512_cvtps_epi32(Mul(x, Set(inverse)));
  __m512i high;
  __m512i low;
  SplitCodes(code, high, low);
  _mm_store_si128(reinterpret_cast<__m128i*>(codes.high + at),
                  _mm512_cvtepi32_epi8(high));
  _mm_store_si128(reinterpret_cast<__m128i*>(codes.low + at), _mm512_cvtepi32_epi8(low));
}

// The same for x >= 0 and codes up to 32767; planes in [0, 127] and [0, 255].
static inline void StoreUnsigned(Vec x, float inverse, int64_t at, DotCodes& codes) {
  const __m512i code = _mm512_cvtps_epi32(Mul(x, Set(inverse)));
  _mm_store_si128(reinterpret_cast<__m128i*>(codes.high + at),
                  _mm512_cvtepi32_epi8(_mm512_srli_epi32(code, 8)));
  _mm_store_si128(reinterpret_cast<__m128i*>(codes.low + at), _mm512_cvtepi32_epi8(code));
}

static inline __m512i BroadcastFour(const uint8_t* codes) {
  int32_t four;
  __builtin_memcpy(&four, codes, 4);
  return _mm512_set1_epi32(four);
}

static inline Vec JoinPlanes(__m512i high, __m512i low) {
  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
}

// Positions r and 16 + r of 4 channels.
struct JoinedKeys {
  __m512i first;
  __m512i second;
};

static inline JoinedKeys JoinNibbles(const uint8_t* high, const uint8_t* low) {
  const __m512i upper = _mm512_set1_epi8(static_cast<char>(0xF0));
  const __m512i h = _mm512_loadu_si512(static_cast<const void*>(high));
  const __m512i l = _mm512_loadu_si512(static_cast<const void*>(low));
  constexpr int kSelect = 0xCA;  // upper ? b : c
  return {_mm512_ternarylogic_epi32(upper, _mm512_slli_epi16(h, 4), l, kSelect),
          _mm512_ternarylogic_epi32(upper, h, _mm512_srli_epi16(l, 4), kSelect)};
}

// scores[n][t] = fma(float(dot), s, base) over kHalves * 32 positions from half `half`.
template <int kQueries, int kHalves>
static inline void KeyHalves(const KeyDots& keys, int64_t half) {
  const int64_t half_bytes = keys.hd * 16;
  const uint8_t* high = keys.page + half * half_bytes;
  const uint8_t* low = high + 2 * half_bytes;
  __m512i acc[kQueries][kHalves * 2][2];
#pragma GCC unroll 6
  for (int n = 0; n < kQueries; ++n) {
#pragma GCC unroll 4
    for (int b = 0; b < kHalves * 2; ++b) {
      acc[n][b][0] = acc[n][b][1] = _mm512_setzero_si512();
    }
  }
  for (int64_t c = 0; c < keys.hd; c += 4) {
    __m512i codes[kHalves * 2];
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      const int64_t at = h * half_bytes + c * 16;
      const JoinedKeys joined = JoinNibbles(high + at, low + at);
      codes[h * 2] = joined.first;
      codes[h * 2 + 1] = joined.second;
      if (keys.next != nullptr) {
        __builtin_prefetch(keys.next + half * half_bytes + at);
        __builtin_prefetch(keys.next + (half + 2) * half_bytes + at);
      }
    }
#pragma GCC unroll 6
    for (int n = 0; n < kQueries; ++n) {
      const __m512i q_high = BroadcastFour(keys.codes[n].high + c);
      const __m512i q_low = BroadcastFour(keys.codes[n].low + c);
#pragma GCC unroll 4
      for (int b = 0; b < kHalves * 2; ++b) {
        acc[n][b][0] = _mm512_dpbusd_epi32(acc[n][b][0], codes[b], q_high);
        acc[n][b][1] = _mm512_dpbusd_epi32(acc[n][b][1], codes[b], q_low);
      }
    }
  }
#pragma GCC unroll 6
  for (int n = 0; n < kQueries; ++n) {
#pragma GCC unroll 4
    for (int b = 0; b < kHalves * 2; ++b) {
      const Vec dot = JoinPlanes(acc[n][b][0], acc[n][b][1]);
      Store(keys.scores[n] + half * 32 + b * 16,
            Fma(dot, Set(keys.s[n]), Set(keys.base[n])));
    }
  }
}

template <int kQueries>
static void ScoreKeys(const KeyDots& keys) {
  if constexpr (kQueries <= 2) {
    KeyHalves<kQueries, 2>(keys, 0);
  } else {
    KeyHalves<kQueries, 1>(keys, 0);
    KeyHalves<kQueries, 1>(keys, 1);
  }
}

// o[n][c] = float(dot) * z over kVecs * 16 channels from c on.
template <int kQueries, int kVecs>
static inline void ValueVecs(const ValueDots& values, int64_t c) {
  constexpr int64_t kVecBytes = 16 * kChunkPositions;
  const uint8_t* v = values.values + c * kChunkPositions;
  __m512i acc[kQueries][kVecs][2];
#pragma GCC unroll 6
  for (int n = 0; n < kQueries; ++n) {
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) acc[n][i][0] = acc[n][i][1] = _mm512_setzero_si512();
  }
  for (int64_t t = 0; t < kChunkPositions; t += 4) {
    __m512i four[kVecs];
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) {
      const int64_t at = i * kVecBytes + t * 16;
      four[i] = _mm512_loadu_si512(static_cast<const void*>(v + at));
      if (values.next != nullptr) {
        __builtin_prefetch(values.next + c * kChunkPositions + at);
      }
    }
#pragma GCC unroll 6
    for (int n = 0; n < kQueries; ++n) {
      const __m512i p_high = BroadcastFour(values.codes[n].high + t);
      const __m512i p_low = BroadcastFour(values.codes[n].low + t);
#pragma GCC unroll 4
      for (int i = 0; i < kVecs; ++i) {
        acc[n][i][0] = _mm512_dpbusd_epi32(acc[n][i][0], p_high, four[i]);
        acc[n][i][1] = _mm512_dpbusd_epi32(acc[n][i][1], p_low, four[i]);
      }
    }
  }
#pragma GCC unroll 6
  for (int n = 0; n < kQueries; ++n) {
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) {
      const Vec dot = JoinPlanes(acc[n][i][0], acc[n][i][1]);
      Store(values.o[n] + c + i * 16, Mul(dot, Set(values.z[n])));
    }
  }
}

template <int kQueries>
static void AddValues(const ValueDots& values) {
  constexpr int kVecs = kQueries <= 2 ? 4 : 2;
  int64_t c = 0;
  for (; c + kVecs * 16 <= values.hd; c += kVecs * 16) {
    ValueVecs<kQueries, kVecs>(values, c);
  }
  for (; c < values.hd; c += 16) ValueVecs<kQueries, 1>(values, c);
}

static inline const DotSteps& DotStepsFor(int queries) {
  static constexpr DotSteps kSteps[kDotQueries] = {{ScoreKeys<1>, AddValues<1>},
                                                   {ScoreKeys<2>, AddValues<2>},
                                                   {ScoreKeys<3>, AddValues<3>},
                                                   {ScoreKeys<4>, AddValues<4>}};
  return kSteps[queries - 1];
}

}  // namespace RENGA_ISA
}  // namespace renga
