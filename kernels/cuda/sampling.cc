// See sampling.h.

#include "kernels/cuda/sampling.h"

#include "kernels/cuda/sampling_shape.h"

namespace renga::cuda {

KernelLaunch DrawLaunch(const DrawArgs&, int32_t most_specs) {
  return {.kernel = kDraw,
          .shape = {.grid_x = most_specs,
                    .threads = kDrawThreads,
                    .shared_bytes = kDrawSharedBytes}};
}

}  // namespace renga::cuda
