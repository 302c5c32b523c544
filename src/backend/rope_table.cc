// See rope_table.h.

#include "backend/rope_table.h"

#include <cmath>

namespace renga {

namespace {

constexpr double kLog2E = 1.4426950408889634;

}  // namespace

void RopeAngles(const GraphShape& shape, int64_t position, std::span<float> cos,
                std::span<float> sin) {
  for (size_t i = 0; i < shape.rope_inverse_frequencies.size(); ++i) {
    const double angle =
        static_cast<double>(position) * shape.rope_inverse_frequencies[i];
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
}

float QueryScale(int32_t head_dim) {
  return static_cast<float>(kLog2E / std::sqrt(static_cast<double>(head_dim)));
}

}  // namespace renga
