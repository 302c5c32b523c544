// StepCost: finds the line through what was measured, also beside a busy neighbour.

#include "engine/step_cost.h"

#include <gtest/gtest.h>

namespace renga {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(StepCostTest, IsZeroBeforeAnythingWasMeasured) {
  EXPECT_EQ(StepCost().base(), Duration{});
  EXPECT_EQ(StepCost().per_row(), Duration{});
}

TEST(StepCostTest, FindsBaseAndSlopeInSpiteOfInterruptedSteps) {
  StepCost cost;
  for (int i = 0; i < 64; ++i) {
    const int64_t rows = 1 + i % 16;
    Duration elapsed = microseconds(5000 + 300 * rows);
    if (i % 5 == 0) elapsed += milliseconds(80);
    cost.Add(rows, elapsed);
  }
  EXPECT_NEAR(static_cast<double>(cost.base().count()), 5e6, 3e5);
  EXPECT_NEAR(static_cast<double>(cost.per_row().count()), 3e5, 3e4);
}

TEST(StepCostTest, KeepsTheSlopeWhileAllStepsAreOfOneSize) {
  StepCost cost;
  for (int i = 0; i < 32; ++i) cost.Add(1 + i % 4, milliseconds(10 + i % 4));
  for (int i = 0; i < 32; ++i) cost.Add(8, milliseconds(17));
  for (int i = 0; i < 32; ++i) cost.Add(8, milliseconds(20));
  EXPECT_NEAR(static_cast<double>(cost.per_row().count()), 1e6, 1e4);
  EXPECT_NEAR(static_cast<double>(cost.base().count()), 12e6, 1e5);
}

}  // namespace
}  // namespace renga
