// The host's side of kernels/cuda/words.h, bit by bit, against whole-number arithmetic: a
// kernel under the emulator then computes what a GPU does.

#include "kernels/cuda/words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace renga::cuda {
namespace {

__extension__ typedef __int128 Wide;

constexpr int kHalfBits = 10;  // Of the fraction.
constexpr int kHalfUnit = 24;  // Every f16 is a multiple of 2^-24.
constexpr uint16_t kInfinity = 0x7C00;

bool IsFinite(uint16_t half) { return (half & kInfinity) != kInfinity; }

// In units of 2^-24.
int64_t Units(uint16_t half) {
  const int64_t fraction = half & 0x3FF;
  const int exponent = half >> kHalfBits & 0x1F;
  const int64_t magnitude =
      exponent == 0 ? fraction : (fraction | 0x400) << (exponent - 1);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

// magnitude * 2^-unit to the nearest f16, ties to even.
uint16_t Round(Wide magnitude, int unit, bool negative) {
  const uint16_t sign = negative ? 0x8000 : 0;
  int top = -1;
  for (Wide rest = magnitude; rest != 0; rest >>= 1) ++top;
  if (top < 0) return sign;
  // The last bit that is kept: 2^-24 of the smallest, 10 below the top of the others.
  const int shift = std::max(unit - kHalfUnit, top - kHalfBits);
  const Wide one = 1;
  Wide kept = shift > 0 ? magnitude >> shift : magnitude << -shift;
  if (shift > 0) {
    const Wide rest = magnitude - (kept << shift);
    const Wide half = one << (shift - 1);
    if (rest > half || (rest == half && (kept & 1) != 0)) kept += 1;
  }
  // Bits of the number: a carry into the exponent is what it should be.
  const int exponent = shift - (unit - kHalfUnit);  // 0: the smallest, or below.
  const Wide bits = kept + (Wide{exponent} << kHalfBits);
  return bits >= kInfinity ? sign | kInfinity : static_cast<uint16_t>(sign | bits);
}

// a * b + c in units of 2^-48.
uint16_t ExactFma(uint16_t a, uint16_t b, uint16_t c) {
  const Wide product = Wide{Units(a)} * Units(b);
  const Wide sum = product + (Wide{Units(c)} << kHalfUnit);
  bool negative = sum < 0;
  if (sum == 0 && product == 0 && Units(c) == 0) {  // Zeros keep the sign they share.
    negative = ((a ^ b) & c & 0x8000) != 0;
  }
  return Round(sum < 0 ? -sum : sum, 2 * kHalfUnit, negative);
}

uint32_t Pair(uint16_t low, uint16_t high) { return low | uint32_t{high} << 16; }

TEST(Words, EveryHalfBecomesItsFloatAndBack) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (!IsFinite(half)) {
      EXPECT_EQ(std::isnan(value), (bits & 0x3FF) != 0);
      EXPECT_EQ(std::isinf(value), (bits & 0x3FF) == 0);
      if (std::isinf(value)) {
        EXPECT_EQ(FloatToHalf(value), half);
      }
      continue;
    }
    ASSERT_EQ(std::ldexp(static_cast<double>(value), kHalfUnit),
              static_cast<double>(Units(half)));
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0);
    ASSERT_EQ(FloatToHalf(value), half);
  }
}

TEST(Words, FloatsBetweenTwoHalvesGoToTheNearestAndTiesToTheEvenOne) {
  for (uint32_t bits = 0; bits < kInfinity; ++bits) {
    const uint16_t low = static_cast<uint16_t>(bits);
    const uint16_t high = static_cast<uint16_t>(bits + 1);
    // Behind the largest comes what would be 2^16, and is infinity.
    const float above = high == kInfinity ? 65536.0f : HalfToFloat(high);
    const float middle = (HalfToFloat(low) + above) / 2.0f;
    ASSERT_EQ(FloatToHalf(middle), bits % 2 == 0 ? low : high);
    ASSERT_EQ(FloatToHalf(-middle), 0x8000 | (bits % 2 == 0 ? low : high));
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e6f)), high);
  }
}

TEST(Words, BfloatsAreTheUpperHalvesOfFloatsRoundedToEven) {
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const uint16_t low = static_cast<uint16_t>(bits);
    const uint32_t wide = bits << 16;
    ASSERT_EQ(FloatAsBits(BfloatToFloat(low)), wide);
    ASSERT_EQ(FloatToBfloat(BitsAsFloat(wide)), low);
    ASSERT_EQ(FloatToBfloat(BitsAsFloat(wide | 0x7FFF)), low);
    ASSERT_EQ(FloatToBfloat(BitsAsFloat(wide | 0x8000)), low + bits % 2);
    ASSERT_EQ(FloatToBfloat(BitsAsFloat(wide | 0x8001)), low + 1);
    ASSERT_EQ(FloatToBfloat(-BitsAsFloat(wide | 0x8001)), 0x8000 | (low + 1));
  }
  EXPECT_EQ(FloatToBfloat(std::numeric_limits<float>::infinity()), 0x7F80);
  EXPECT_TRUE(std::isnan(BfloatToFloat(FloatToBfloat(BitsAsFloat(0x7F800001)))));
}

// Half of the triples have operands close together, where sums cancel and round.
TEST(Words, HalfArithmeticRoundsTheExactResultOnce) {
  std::mt19937 random(1);
  for (int i = 0; i < 500000; ++i) {
    uint16_t v[3];
    for (uint16_t& value : v) {
      do {
        value = static_cast<uint16_t>(random());
        if (i % 2 == 0) value = static_cast<uint16_t>((value & 0x8FFF) | 0x3000);
      } while (!IsFinite(value));
    }
    const auto [a, b, c] = v;
    const uint16_t one = 0x3C00;
    const uint16_t minus = static_cast<uint16_t>(b ^ 0x8000);
    ASSERT_EQ(FmaHalf2(Pair(a, c), Pair(b, a), Pair(c, b)),
              Pair(ExactFma(a, b, c), ExactFma(c, a, b)));
    ASSERT_EQ(AddHalf2(Pair(a, b), Pair(b, c)),
              Pair(ExactFma(a, one, b), ExactFma(b, one, c)));
    ASSERT_EQ(SubHalf2(Pair(a, 0), Pair(b, 0)) & 0xFFFF, ExactFma(a, one, minus));
    const bool negative = ((a ^ b) & 0x8000) != 0;
    const Wide product = Wide{Units(a)} * Units(b);
    ASSERT_EQ(MulHalf2(Pair(0, a), Pair(0, b)) >> 16,
              Round(product < 0 ? -product : product, 2 * kHalfUnit, negative));
  }
}

// Where a rounding to f32 or double first would go wrong: the exact sum is a hair off the
// middle of two halves.
TEST(Words, FmaHalf2DoesNotRoundTwice) {
  const uint16_t smallest = 0x0001;
  for (uint32_t bits = 0x0400; bits < 0x7800; bits += 7) {
    const uint16_t a = static_cast<uint16_t>(bits);
    for (const uint16_t c : {smallest, uint16_t{0x8001}}) {
      for (const uint16_t b : {uint16_t{0x3801}, uint16_t{0x3C01}, uint16_t{0x3800}}) {
        ASSERT_EQ(FmaHalf2(a, b, c) & 0xFFFF, ExactFma(a, b, c));
      }
      ASSERT_EQ(FmaHalf2(smallest, smallest, a) & 0xFFFF,
                ExactFma(smallest, smallest, a));
    }
  }
}

TEST(Words, BitsAreMovedAsTheInstructionsMoveThem) {
  EXPECT_EQ(AndOr(0xABCD1234u, 0x000F000Fu, 0x64006400u), 0x640D6404u);
  EXPECT_EQ(BytePerm(0x03020100u, 0x07060504u, 0x7531u), 0x07050301u);
  EXPECT_EQ(BytePerm(0xDDCCBBAAu, 0u, 0x4140u), 0x00BB00AAu);
  EXPECT_EQ(MulHigh64(~uint64_t{0}, ~uint64_t{0}), ~uint64_t{0} - 1);
  EXPECT_EQ(MulHigh64(uint64_t{1} << 40, uint64_t{3} << 30), uint64_t{3} << 6);
  EXPECT_EQ(PackHalf2(1.0f, -2.0f), 0xC0003C00u);
}

TEST(Words, FloatFunctionsAreThoseOfTheirNames) {
  EXPECT_EQ(RoundToEven(2.5f), 2.0f);
  EXPECT_EQ(RoundToEven(-3.5f), -4.0f);
  EXPECT_EQ(Divide(1.0f, 3.0f), 1.0f / 3.0f);
  EXPECT_EQ(Exp2(-3.0f), 0.125f);
  EXPECT_EQ(Exp2(kMinusInfinity), 0.0f);
  EXPECT_EQ(Rsqrt(16.0f), 0.25f);
  // (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24: lost if the product is rounded first.
  EXPECT_EQ(Fma(1.000244140625f, 1.000244140625f, -1.00048828125f), 0x1p-24f);
}

}  // namespace
}  // namespace renga::cuda
