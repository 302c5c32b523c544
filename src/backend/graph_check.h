// Whether the numbers that a backend is configured with are in range, so that nothing
// later multiplies or divides by one that is not. For every backend.
//
// Thread safety: plain functions.

#pragma once

#include <cstdint>

#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

// InvalidArgument with the field unless low <= value <= high.
Status CheckRange(const char* field, int64_t value, int64_t low, int64_t high);

// InvalidArgument with the field of GraphShape or BackendLimits.
Status CheckGraph(const GraphShape& shape);
Status CheckLimits(const BackendLimits& limits);

}  // namespace renga
