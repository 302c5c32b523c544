// See cuda_device.h: a build without CUDA.

#include "backend/cuda_device.h"

namespace renga {

int32_t CudaDeviceCount() { return 0; }

StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int32_t /*index*/) {
  return Unavailable("this build has no CUDA");
}

}  // namespace renga
