// All families' kernels for the emulator in one table.

#include <vector>

#include "tests/cuda/emulated/emulated_kernels.h"

namespace renga::test {
namespace {

[[maybe_unused]] void Append(EmulatedKernels family, std::vector<EmulatedKernel>& all) {
  all.insert(all.end(), family.first, family.first + family.count);
}

}  // namespace

std::vector<EmulatedKernel> AllEmulatedKernels() {
  std::vector<EmulatedKernel> all;
#if defined(RENGA_EMULATED_PRODUCT)
  Append(EmulatedProductKernels(), all);
#endif
#if defined(RENGA_EMULATED_ROWS)
  Append(EmulatedRowKernels(), all);
#endif
#if defined(RENGA_EMULATED_ATTENTION)
  Append(EmulatedAttentionKernels(), all);
#endif
#if defined(RENGA_EMULATED_SAMPLING)
  Append(EmulatedSamplingKernels(), all);
#endif
  return all;
}

}  // namespace renga::test
