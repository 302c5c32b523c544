// Small right kernels that show what the emulator's operations compute and count.

#pragma once

#include <stdint.h>

#include "tests/simt/simt_family.h"

namespace renga::test {

// Arguments of all: some words in, some out, a number.
struct ProbeArgs {
  const uint32_t* in = nullptr;
  const uint32_t* more = nullptr;
  uint32_t* out = nullptr;
  int32_t n = 0;
};

EmulatedKernels ProbeKernels();

}  // namespace renga::test
