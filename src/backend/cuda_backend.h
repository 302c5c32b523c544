// One CUDA device as a Backend: fused steps over the kernels of kernels/cuda.

#pragma once

#include <cstdint>
#include <memory>

#include "backend/device.h"
#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

struct CudaBackendOptions {
  // False: large batches are multiplied by cuBLASLt with dequantised weights, so that a
  // row's last bits depend on how many rows there are. Another numerics id.
  bool row_invariant = true;
  // Decode steps are captured once and replayed.
  bool graphs = true;
  // Workers that pack weights, and sample what the device can't; 0: all cores.
  int32_t threads = 0;
  // Of the arenas that weights and activations are cut from; 0: every buffer is an
  // allocation of its own, as tools that look for overruns want it.
  int64_t arena_block_bytes = int64_t{16} << 20;
};

StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Device> device,
                                                   const CudaBackendOptions& options);

}  // namespace renga
