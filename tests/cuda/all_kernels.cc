// All families' kernels for the emulator in one table.

#include <vector>

#include "tests/cuda/emulated/emulated_kernels.h"

namespace renga::test {

std::vector<EmulatedKernel> AllEmulatedKernels() {
  std::vector<EmulatedKernel> all;
  for (const EmulatedKernels& family :
       {EmulatedProductKernels(), EmulatedRowKernels(), EmulatedAttentionKernels(),
        EmulatedSamplingKernels()}) {
    all.insert(all.end(), family.first, family.first + family.count);
  }
  return all;
}

}  // namespace renga::test
