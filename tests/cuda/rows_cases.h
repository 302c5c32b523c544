// Checks of the kernels of kernels/cuda/rows.h. See device_case.h.

#pragma once

#include "tests/cuda/device_case.h"

namespace renga::test {

// Norm, SwiGLU, rotation and append.
CheckResults CheckRows(Device& device, CheckSize size);

// Closing and copying of chunks, bit by bit.
CheckResults CheckPages(Device& device, CheckSize size);

CheckResults CheckChunkPool(Device& device, CheckSize size);

}  // namespace renga::test
