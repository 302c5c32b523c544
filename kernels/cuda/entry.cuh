// Turns a family's list of kernels into entry points and the table that host code
// launches from. A family ends its .cuh with
//
//   #define RENGA_ROW_KERNELS(X) \
//     X(kRmsNorm, RmsNormArgs, 256, 4, RmsNorm)  id, arguments, threads of a block, least
//     ...                                        blocks per SM, body (in brackets if its
//                                                template arguments hold a comma)
//
// and its .cu is RENGA_CUDA_FAMILY(RENGA_ROW_KERNELS, RowKernels).

#pragma once

#include "kernels/cuda/cuda_ctx.cuh"
#include "kernels/cuda/launch.h"

#define RENGA_CUDA_ENTRY(id, Args, block_threads, least_blocks, body) \
  __global__ void __launch_bounds__(block_threads, least_blocks)      \
      Entry_##id(const __grid_constant__ Args args) {                 \
    CudaCtx ctx;                                                      \
    body(ctx, args);                                                  \
  }

#define RENGA_CUDA_TABLE_ROW(id, Args, block_threads, least_blocks, body) \
  {id, #id, reinterpret_cast<const void*>(&Entry_##id), block_threads, sizeof(Args)},

#define RENGA_CUDA_FAMILY(KERNELS, function)                                   \
  namespace renga::cuda {                                                      \
  namespace {                                                                  \
  KERNELS(RENGA_CUDA_ENTRY)                                                    \
  const KernelEntry kTable[] = {KERNELS(RENGA_CUDA_TABLE_ROW)};                \
  }                                                                            \
  KernelEntries function() {                                                   \
    return {kTable, static_cast<int32_t>(sizeof(kTable) / sizeof(kTable[0]))}; \
  }                                                                            \
  }
