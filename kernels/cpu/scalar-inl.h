// One float or one code at a time: what the portable definitions share.

#pragma once

#include <stdint.h>

#include "kernels/block_format.h"
#include "kernels/cpu/exp2-inl.h"

namespace renga {
namespace RENGA_ISA {

static inline float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// 16 partial sums, folded 8, 4, 2, 1.
static inline float FoldSum(float (&sums)[16]) {
  for (int n = 8; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) sums[i] = sums[i] + sums[i + n];
  }
  return sums[0];
}

static inline float LoadF16(const uint8_t* data) {
  uint16_t half;
  __builtin_memcpy(&half, data, 2);
  return F16ToF32(half);
}

static inline float LoadF32(const uint8_t* data) {
  float value;
  __builtin_memcpy(&value, data, 4);
  return value;
}

// The nearest code whose planes fit [-127, 127].
static inline int32_t RoundCode(float value) {
  const int32_t code = static_cast<int32_t>((value + kRoundMagic) - kRoundMagic);
  const int32_t low = code - ((code + 128) >> 8) * 256;
  return low == -128 ? code + 1 : code;
}

}  // namespace RENGA_ISA
}  // namespace renga
