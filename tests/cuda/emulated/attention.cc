// The attention kernels, compiled for the emulator.

#include "kernels/cuda/attention.cuh"

#include "tests/simt/simt_family.h"

RENGA_SIMT_FAMILY(RENGA_ATTENTION_KERNELS, EmulatedAttentionKernels)
