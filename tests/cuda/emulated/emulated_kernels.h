// The kernels of kernels/cuda, compiled for the emulator: one function per family, each
// in a file of this folder.

#pragma once

#include <vector>

#include "tests/simt/simt_family.h"

namespace renga::test {

EmulatedKernels EmulatedProductKernels();
EmulatedKernels EmulatedRowKernels();
EmulatedKernels EmulatedAttentionKernels();
EmulatedKernels EmulatedSamplingKernels();

// Of all families: what SimtDevice is made with.
std::vector<EmulatedKernel> AllEmulatedKernels();

}  // namespace renga::test
