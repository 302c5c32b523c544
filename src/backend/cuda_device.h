// CudaDevice: a Device on the CUDA runtime and cuBLASLt. Builds without CUDA have these
// functions too; they say so.
//
// Thread rule: Device's. A device may be made by one thread and used by another.

#pragma once

#include <cstdint>
#include <memory>

#include "backend/device.h"
#include "renga/status.h"

namespace renga {

// The GPUs that this process may use (CUDA_VISIBLE_DEVICES hides some); 0 without a
// driver.
int32_t CudaDeviceCount();

// Unavailable where there is no GPU at all: no driver, no device, or a build without
// CUDA. FailedPrecondition: the driver is too old. InvalidArgument with device.name for
// an index that does not exist, Unimplemented with it for a GPU that the kernels do not
// run on.
StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int32_t index);

}  // namespace renga
