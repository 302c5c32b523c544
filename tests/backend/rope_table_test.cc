#include "backend/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace renga {
namespace {

TEST(RopeTable, AnglesArePositionTimesFrequency) {
  GraphShape shape{.rope_dims = 6, .rope_inverse_frequencies = {1.0, 0.1, 1e-4}};
  for (const int64_t position : {0, 1, 7, 8191}) {
    std::vector<float> cos(3);
    std::vector<float> sin(3);
    RopeAngles(shape, position, cos, sin);
    for (size_t i = 0; i < 3; ++i) {
      const double angle =
          static_cast<double>(position) * shape.rope_inverse_frequencies[i];
      EXPECT_EQ(cos[i], static_cast<float>(std::cos(angle))) << position << " " << i;
      EXPECT_EQ(sin[i], static_cast<float>(std::sin(angle))) << position << " " << i;
    }
  }
}

TEST(RopeTable, AScoreOfAQueryIsInBaseTwo) {
  // 2^(q . k * scale) = e^(q . k / sqrt(d))
  for (const int32_t head_dim : {16, 64, 128}) {
    const double scale = static_cast<double>(QueryScale(head_dim));
    EXPECT_NEAR(std::exp2(scale * 3.0), std::exp(3.0 / std::sqrt(head_dim)), 1e-6);
  }
}

}  // namespace
}  // namespace renga
