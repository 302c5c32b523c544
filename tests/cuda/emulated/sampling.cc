// The draw, compiled for the emulator.

#include "kernels/cuda/sampling.cuh"

#include "tests/simt/simt_family.h"

RENGA_SIMT_FAMILY(RENGA_SAMPLING_KERNELS, EmulatedSamplingKernels)
