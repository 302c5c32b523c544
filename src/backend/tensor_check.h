// Whether a tensor of a model file can be packed, and what its type is called by the
// kernels. For every backend.
//
// Thread safety: plain functions.

#pragma once

#include <cstdint>
#include <string>

#include "kernels/block_format.h"
#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

WeightType WeightTypeOf(TensorType type);

// InvalidArgument with the tensor's name, its type and shape, and the reason.
Status RefuseTensor(const TensorView& view, const std::string& why);

// Refuses what has no data, other columns than `cols`, columns that are not whole blocks,
// or a size out of range.
Status CheckTensor(const TensorView& view, int64_t cols);

}  // namespace renga
