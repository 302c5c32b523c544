// The panels, from the definitions of the file formats.

#include "kernels/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/kernel_cases.h"

namespace renga {
namespace {

TEST(Panels, UnpackRowGivesTheFilesValues) {
  for (const WeightType type : kAllTypes) {
    for (const int64_t rows : {1, 31, 32, 33, 70}) {
      const int64_t cols =
          IsQuantised(type) ? std::max<int64_t>(96, 2 * FileBlockValues(type)) : 37;
      const TestWeights w = RandomWeights(type, rows, cols, 7);
      for (int64_t row = 0; row < rows; ++row) {
        GuardedFloats out(cols);
        UnpackRow(type, w.panels.data(), row, cols, out.data());
        for (int64_t k = 0; k < cols; ++k) {
          const double expected = w.values[static_cast<size_t>(row * cols + k)];
          ASSERT_NEAR(out[k], expected, std::abs(expected) * 1e-7)
              << TypeName(type) << " row " << row << " k " << k;
        }
        EXPECT_TRUE(out.GuardsIntact());
      }
    }
  }
}

TEST(Panels, AQ4_0ScaleMustHaveRoomForEightTimesAsMuch) {
  std::vector<uint8_t> rows(3 * 2 * 18);  // 3 rows of 2 blocks.
  const auto fits = [&](uint16_t d) {
    rows[5 * 18] = static_cast<uint8_t>(d & 255);
    rows[5 * 18 + 1] = static_cast<uint8_t>(d >> 8);
    return FitsPanels(WeightType::kQ4_0, rows.data(), 3, 64);
  };
  EXPECT_TRUE(fits(0));
  EXPECT_TRUE(fits(F32ToF16(8188.0f)));  // The largest half below 8192.
  EXPECT_TRUE(fits(F32ToF16(-8188.0f)));
  EXPECT_FALSE(fits(F32ToF16(8192.0f)));
  EXPECT_FALSE(fits(F32ToF16(-65504.0f)));
  EXPECT_TRUE(fits(0x7C00)) << "an infinity stays one, and shows in the logits";
  EXPECT_TRUE(fits(0x7E00));
  EXPECT_TRUE(FitsPanels(WeightType::kQ4_1, rows.data(), 1, 32));
}

}  // namespace
}  // namespace renga
