// Arithmetic that C++ has no word for, for kernel bodies: halves, bit tricks, fast
// functions. On the GPU single instructions, on the host plain code with the same results
// (but Exp2 and Rsqrt, which the GPU approximates: relative error 2^-22).
//
// Half: 16 bits of IEEE f16; Bfloat: bf16. A pair is a uint32_t, its first element in the
// low 16 bits. Conversions round to nearest even.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include <math.h>

#include "kernels/block_format.h"
#endif

namespace renga::cuda {

constexpr float kMinusInfinity = -__builtin_huge_valf();
constexpr float kLog2E = 1.44269504f;

#if defined(__CUDACC__)

RENGA_DEVICE float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
RENGA_DEVICE float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
RENGA_DEVICE float Rsqrt(float x) { return rsqrtf(x); }
RENGA_DEVICE float Divide(float a, float b) { return __fdiv_rn(a, b); }
RENGA_DEVICE float RoundToEven(float x) { return rintf(x); }
// The larger; if one is NaN, the other.
RENGA_DEVICE float Max(float a, float b) { return fmaxf(a, b); }
RENGA_DEVICE uint32_t FloatAsBits(float x) { return __float_as_uint(x); }
RENGA_DEVICE float BitsAsFloat(uint32_t x) { return __uint_as_float(x); }
RENGA_DEVICE float HalfToFloat(uint16_t h) { return __half2float(__ushort_as_half(h)); }
RENGA_DEVICE uint16_t FloatToHalf(float x) {
  return __half_as_ushort(__float2half_rn(x));
}
RENGA_DEVICE float BfloatToFloat(uint16_t h) {
  return __uint_as_float(static_cast<uint32_t>(h) << 16);
}
RENGA_DEVICE uint16_t FloatToBfloat(float x) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
RENGA_DEVICE __half2 AsHalf2(uint32_t x) { return *reinterpret_cast<const __half2*>(&x); }
RENGA_DEVICE uint32_t FromHalf2(__half2 x) { return *reinterpret_cast<uint32_t*>(&x); }
RENGA_DEVICE uint32_t PackHalf2(float low, float high) {
  return FromHalf2(__floats2half2_rn(low, high));
}
RENGA_DEVICE uint32_t PackBfloat2(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
RENGA_DEVICE uint32_t AddHalf2(uint32_t a, uint32_t b) {
  return FromHalf2(__hadd2_rn(AsHalf2(a), AsHalf2(b)));
}
RENGA_DEVICE uint32_t SubHalf2(uint32_t a, uint32_t b) {
  return FromHalf2(__hsub2_rn(AsHalf2(a), AsHalf2(b)));
}
RENGA_DEVICE uint32_t MulHalf2(uint32_t a, uint32_t b) {
  return FromHalf2(__hmul2_rn(AsHalf2(a), AsHalf2(b)));
}
// a * b + c, rounded once.
RENGA_DEVICE uint32_t FmaHalf2(uint32_t a, uint32_t b, uint32_t c) {
  return FromHalf2(__hfma2(AsHalf2(a), AsHalf2(b), AsHalf2(c)));
}
// (a & mask) | bits in one instruction.
RENGA_DEVICE uint32_t AndOr(uint32_t a, uint32_t mask, uint32_t bits) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(mask), "r"(bits));
  return r;
}
// Bytes of {b, a} (a's are 0..3, b's 4..7) by the selector's nibbles.
RENGA_DEVICE uint32_t BytePerm(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}
RENGA_DEVICE uint64_t MulHigh64(uint64_t a, uint64_t b) { return __umul64hi(a, b); }
// The place of the lowest 1. REQUIRES: x != 0.
RENGA_DEVICE int LowestBit(uint32_t x) { return __ffs(static_cast<int>(x)) - 1; }

#else  // The host.

inline float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float Exp2(float x) { return exp2f(x); }
inline float Rsqrt(float x) { return 1.0f / sqrtf(x); }
inline float Divide(float a, float b) { return a / b; }
inline float RoundToEven(float x) { return rintf(x); }
inline float Max(float a, float b) { return fmaxf(a, b); }
inline uint32_t FloatAsBits(float x) { return FloatBits(x); }
inline float BitsAsFloat(uint32_t x) { return BitsFloat(x); }
inline float HalfToFloat(uint16_t h) { return F16ToF32(h); }
inline uint16_t FloatToHalf(float x) { return F32ToF16(x); }
inline float BfloatToFloat(uint16_t h) {
  return BitsFloat(static_cast<uint32_t>(h) << 16);
}
inline uint16_t FloatToBfloat(float x) {
  const uint32_t bits = FloatBits(x);
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
inline uint32_t PairOf(uint16_t low, uint16_t high) {
  return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
}
inline float LowOf(uint32_t pair) { return F16ToF32(static_cast<uint16_t>(pair)); }
inline float HighOf(uint32_t pair) { return F16ToF32(static_cast<uint16_t>(pair >> 16)); }
inline uint32_t PackHalf2(float low, float high) {
  return PairOf(F32ToF16(low), F32ToF16(high));
}
inline uint32_t PackBfloat2(float low, float high) {
  return PairOf(FloatToBfloat(low), FloatToBfloat(high));
}
// Doubles that are not exact get an odd last bit, so that a later rounding to fewer bits
// is that of the exact value (rounding to odd: Boldo and Melquiond 2008).
inline double OddIf(double value, double rest) {
  if (!(rest != 0.0) || rest != rest) return value;
  uint64_t bits;
  __builtin_memcpy(&bits, &value, 8);
  if ((bits & 1u) == 0) bits += (rest > 0.0) == (value > 0.0) ? 1u : ~uint64_t{0};
  __builtin_memcpy(&value, &bits, 8);
  return value;
}
inline uint16_t DoubleToHalf(double value) {
  float f = static_cast<float>(value);
  const double rest = value - static_cast<double>(f);
  const uint32_t bits = FloatBits(f);
  if (rest != 0.0 && rest == rest && (bits & 1u) == 0) {
    f = BitsFloat(bits + ((rest > 0.0) == (f > 0.0f) ? 1u : ~0u));
  }
  return F32ToF16(f);
}
// a * b + c of halves, rounded once: the product is exact, the sum's error is known
// (Knuth's TwoSum).
inline uint16_t FmaHalf(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double wide = static_cast<double>(c);
  const double sum = product + wide;
  const double part = sum - product;
  const double rest = (product - (sum - part)) + (wide - part);
  return DoubleToHalf(OddIf(sum, rest));
}
inline uint32_t AddHalf2(uint32_t a, uint32_t b) {
  return PairOf(FmaHalf(LowOf(a), 1.0f, LowOf(b)), FmaHalf(HighOf(a), 1.0f, HighOf(b)));
}
inline uint32_t SubHalf2(uint32_t a, uint32_t b) {
  return PairOf(FmaHalf(LowOf(b), -1.0f, LowOf(a)), FmaHalf(HighOf(b), -1.0f, HighOf(a)));
}
// A product of two 11-bit numbers has 22 bits: f32 holds it.
inline uint32_t MulHalf2(uint32_t a, uint32_t b) {
  return PackHalf2(LowOf(a) * LowOf(b), HighOf(a) * HighOf(b));
}
inline uint32_t FmaHalf2(uint32_t a, uint32_t b, uint32_t c) {
  return PairOf(FmaHalf(LowOf(a), LowOf(b), LowOf(c)),
                FmaHalf(HighOf(a), HighOf(b), HighOf(c)));
}
inline uint32_t AndOr(uint32_t a, uint32_t mask, uint32_t bits) {
  return (a & mask) | bits;
}
inline uint32_t BytePerm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t pick = selector >> (4 * i) & 7u;
    r |= static_cast<uint32_t>(bytes >> (8 * pick) & 0xFFu) << (8 * i);
  }
  return r;
}
inline uint64_t MulHigh64(uint64_t a, uint64_t b) {
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<uint64_t>((Wide{a} * b) >> 64);
}
inline int LowestBit(uint32_t x) { return __builtin_ctz(x); }

#endif

}  // namespace renga::cuda
