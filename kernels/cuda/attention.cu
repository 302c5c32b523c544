// The attention kernels for the GPU.

#include "kernels/cuda/attention.cuh"

#include "kernels/cuda/entry.cuh"

RENGA_CUDA_FAMILY(RENGA_ATTENTION_KERNELS, AttentionKernels)
