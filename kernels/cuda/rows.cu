// The kernels of rows.h, for the GPU.

#include "kernels/cuda/rows.cuh"

#include "kernels/cuda/entry.cuh"

RENGA_CUDA_FAMILY(RENGA_ROW_KERNELS, RowKernels)
