// A small kernel for tests of LazyDevice: out = in + amount + baked, four words a thread.

#pragma once

#include <stdint.h>

#include "tests/simt/simt_family.h"

namespace renga::test {

inline constexpr cuda::KernelId kLazyAdd{950};

struct LazyAddArgs {
  const uint32_t* in = nullptr;
  const uint32_t* amount = nullptr;  // Four words, of which the first counts.
  uint32_t* out = nullptr;
  uint32_t baked = 0;  // Known at the launch.
};

// `blocks` blocks of 32 threads: 128 words each.
inline cuda::KernelLaunch LazyAddLaunch(int32_t blocks) {
  return {.kernel = kLazyAdd, .shape = {.grid_x = blocks, .threads = 32}};
}

EmulatedKernels LazyKernels();

}  // namespace renga::test
