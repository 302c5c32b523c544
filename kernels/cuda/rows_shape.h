// Threads and shared memory of the kernels on rows and pages: what the bodies
// (rows_*.cuh) and their launches (rows.cc) have to agree on.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"

namespace renga::cuda {

constexpr int kChunkTokens = 64;

constexpr int kRowThreads = 256;  // Norm and SwiGlu; a thread takes 4 elements at a time.
constexpr int kRopeThreads = 128;
constexpr int kCloseThreads = 256;
constexpr int kCopyThreads = 128;
constexpr int kPoolThreads = 128;

// KvClose: min and 1 / step of each channel, 1 / scale of each token; floats.
RENGA_HOST_DEVICE constexpr int CloseSharedBytes(int head_dim) {
  return 4 * (2 * head_dim + kChunkTokens);
}

// ChunkPool. A row of a tile in shared memory, in f16: an odd multiple of 16 bytes, so
// that the 8 rows of an ldmatrix lie in different banks.
RENGA_HOST_DEVICE constexpr int PoolPitch(int head_dim) { return head_dim + 8; }
RENGA_HOST_DEVICE constexpr int PoolTileBytes(int head_dim) {
  return kChunkTokens * PoolPitch(head_dim) * 2;
}
// Tiles of q, k and v, then the weights of the keys, one row per warp.
RENGA_HOST_DEVICE constexpr int PoolSharedBytes(int head_dim) {
  return 3 * PoolTileBytes(head_dim) + kPoolThreads / kWarp * kChunkTokens * 4;
}

}  // namespace renga::cuda
