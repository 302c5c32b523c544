// f16 conversion, from its definition.

#include "kernels/block_format.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_cases.h"

namespace renga {
namespace {

TEST(F16, EveryHalfConvertsExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = F16ToF32(half);
    if ((half & 0x7C00) == 0x7C00) {
      EXPECT_EQ(std::isnan(value), (half & 0x3FF) != 0);
      EXPECT_EQ(std::isinf(value), (half & 0x3FF) == 0);
    } else {
      ASSERT_EQ(static_cast<double>(value), HalfValue(half)) << bits;
    }
    ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0) << bits;
  }
}

TEST(F16, EveryHalfSurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const bool nan = (half & 0x7C00) == 0x7C00 && (half & 0x3FF) != 0;
    const uint16_t expected = nan ? static_cast<uint16_t>(half | 0x200) : half;
    ASSERT_EQ(F32ToF16(F16ToF32(half)), expected) << bits;
  }
}

TEST(F16, RoundsToNearestEvenBetweenNeighbours) {
  for (uint16_t half = 0; half < 0x7BFF; ++half) {
    const uint16_t above = static_cast<uint16_t>(half + 1);
    const double middle = (HalfValue(half) + HalfValue(above)) / 2;
    const float tie = static_cast<float>(middle);  // Exact: one more bit.
    const uint16_t even = half % 2 == 0 ? half : above;
    ASSERT_EQ(F32ToF16(tie), even) << half;
    ASSERT_EQ(F32ToF16(-tie), even | 0x8000) << half;
    ASSERT_EQ(F32ToF16(std::nextafter(tie, 0.0f)), half) << half;
    ASSERT_EQ(F32ToF16(std::nextafter(tie, 1e30f)), above) << half;
  }
}

TEST(F16, OverflowsToInfinityFromHalfWayToTheNextPower) {
  EXPECT_EQ(F32ToF16(65504.0f), 0x7BFF);
  EXPECT_EQ(F32ToF16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7C00);
  EXPECT_EQ(F32ToF16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::denorm_min()), 0);
}

}  // namespace
}  // namespace renga
