// The angles of rotary position embedding, and the factor that goes into a query while it
// is rotated. The same numbers for every backend.
//
// Thread safety: plain functions.

#pragma once

#include <cstdint>
#include <span>

#include "renga/backend.h"

namespace renga {

// cos and sin of one position, [rope_dims / 2] each, rounded from double.
void RopeAngles(const GraphShape& shape, int64_t position, std::span<float> cos,
                std::span<float> sin);

// log2(e) / sqrt(head_dim): scores are in base 2.
float QueryScale(int32_t head_dim);

}  // namespace renga
