// The kernels of rows.h: their bodies, and the list that nvcc and the emulator compile.

#pragma once

#include "kernels/cuda/rows_activations.cuh"
#include "kernels/cuda/rows_chunk_pool.cuh"
#include "kernels/cuda/rows_pages.cuh"
#include "kernels/cuda/rows_shape.h"

#define RENGA_ROW_KERNELS(X)                                                          \
  X(kRmsNorm1024, RmsNormArgs, kRowThreads, 4, RmsNorm<1>)                            \
  X(kRmsNorm4096, RmsNormArgs, kRowThreads, 4, RmsNorm<4>)                            \
  X(kRmsNorm16384, RmsNormArgs, kRowThreads, 2, RmsNorm<16>)                          \
  X(kSwiGlu, SwiGluArgs, kRowThreads, 4, SwiGlu)                                      \
  X(kRopeAppendF16, RopeAppendArgs, kRopeThreads, 8, RopeAppend<PageElement::kF16>)   \
  X(kRopeAppendBf16, RopeAppendArgs, kRopeThreads, 8, RopeAppend<PageElement::kBf16>) \
  X(kKvClose, KvCloseArgs, kCloseThreads, 4, KvClose)                                 \
  X(kKvCopy, KvCopyArgs, kCopyThreads, 8, KvCopy)                                     \
  X(kChunkPool, ChunkPoolArgs, kPoolThreads, 4, ChunkPool)
