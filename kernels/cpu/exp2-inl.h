// The one exp2 of the product, as scalar code; vec-inl.h has the same over 16 lanes.
//
//   x clamped to [-127, 127]; n = round_to_even(x) by adding 1.5 * 2^23; f = x - n;
//   p = c0 + f (c1 + ... + f c6) by fma; result = p * 2^n, with 2^-127 taken as 0.
//
// Relative error at most 2e-9 before rounding (minimax on [-0.5, 0.5]); exp2(0) == 1; a
// NaN stays a NaN.

#pragma once

#include <stdint.h>

namespace renga {
namespace RENGA_ISA {

constexpr float kExp2Lowest = -127.0f;
constexpr float kExp2Highest = 127.0f;
constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23
constexpr float kExp2C0 = 1.0f;
constexpr float kExp2C1 = 0.693147206f;
constexpr float kExp2C2 = 0.240226469f;
constexpr float kExp2C3 = 0.0555032878f;
constexpr float kExp2C4 = 0.00961848896f;
constexpr float kExp2C5 = 0.00133999312f;
constexpr float kExp2C6 = 0.000153458122f;
constexpr float kLog2E = 1.44269504f;

static inline float Exp2(float x) {
  x = kExp2Lowest > x ? kExp2Lowest : x;
  x = kExp2Highest < x ? kExp2Highest : x;
  const float shifted = x + kRoundMagic;
  const float f = x - (shifted - kRoundMagic);
  float p = kExp2C6;
  p = __builtin_fmaf(p, f, kExp2C5);
  p = __builtin_fmaf(p, f, kExp2C4);
  p = __builtin_fmaf(p, f, kExp2C3);
  p = __builtin_fmaf(p, f, kExp2C2);
  p = __builtin_fmaf(p, f, kExp2C1);
  p = __builtin_fmaf(p, f, kExp2C0);
  uint32_t bits;
  __builtin_memcpy(&bits, &shifted, 4);
  bits = (bits + 127u) << 23;
  float scale;
  __builtin_memcpy(&scale, &bits, 4);
  return p * scale;
}

}  // namespace RENGA_ISA
}  // namespace renga
