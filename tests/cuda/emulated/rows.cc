// The kernels on rows and pages, compiled for the emulator.

#include "kernels/cuda/rows.cuh"

#include "tests/simt/simt_family.h"

RENGA_SIMT_FAMILY(RENGA_ROW_KERNELS, EmulatedRowKernels)
