// The product kernels, compiled for the GPU.

#include "kernels/cuda/product.cuh"

#include "kernels/cuda/entry.cuh"

RENGA_CUDA_FAMILY(RENGA_PRODUCT_KERNELS, ProductKernels)
