// The kernel of sampling.h, for the GPU.

#include "kernels/cuda/sampling.cuh"

#include "kernels/cuda/entry.cuh"

RENGA_CUDA_FAMILY(RENGA_SAMPLING_KERNELS, SamplingKernels)
