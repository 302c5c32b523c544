// The product kernels, compiled for the emulator.

#include "kernels/cuda/product.cuh"

#include "tests/simt/simt_family.h"

RENGA_SIMT_FAMILY(RENGA_PRODUCT_KERNELS, EmulatedProductKernels)
