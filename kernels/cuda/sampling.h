// Sampling on the device: arguments and launch shapes of the kernels in sampling.cuh.
//
// Draws the token that kernels/sampling.h draws for the same logits, bit by bit: the same
// weights (integers), the same order, the same Philox. Left to the host: typical_p,
// edited logits, log-probabilities.

#pragma once

#include <stdint.h>

#include "kernels/cuda/launch.h"

namespace renga::cuda {

inline constexpr KernelId kDraw{400};

struct DrawSpec {
  int32_t logit_row = 0;
  float temperature = 0.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  uint32_t choice = 0;
  uint32_t token_index = 0;
  uint64_t seed = 0;
};

struct DrawArgs {
  const float* logits = nullptr;  // [.][vocab]
  const DrawSpec* specs = nullptr;
  const int32_t* spec_count = nullptr;  // On the device.
  int32_t* tokens = nullptr;            // [specs]; -1: nothing can be drawn.
  int64_t vocab = 0;
};
KernelLaunch DrawLaunch(const DrawArgs& args, int32_t most_specs);

}  // namespace renga::cuda
