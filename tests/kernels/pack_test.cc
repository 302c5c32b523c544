// The panels, from the definitions of the file formats.

#include "kernels/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_cases.h"

namespace renga {
namespace {

TEST(Panels, UnpackRowGivesTheFilesValues) {
  for (const WeightType type : kAllTypes) {
    for (const int64_t rows : {1, 31, 32, 33, 70}) {
      const int64_t cols = IsQuantised(type) ? 96 : 37;
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

}  // namespace
}  // namespace renga
