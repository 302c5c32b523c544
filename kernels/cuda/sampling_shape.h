// Threads and shared memory of the draw: what its body (sampling.cuh, sampling_row.cuh)
// and its launch (sampling.cc) have to agree on.

#pragma once

#include "kernels/cuda/context.h"

namespace renga::cuda {

constexpr int kDrawThreads = 512;
constexpr int kDrawWarps = kDrawThreads / kWarp;
constexpr int kDrawBins = 1024;
constexpr int kDrawListed = 4096;  // Logits that are kept in shared memory.
constexpr int kDrawDepths = 5;

// Shared memory of a draw, in bytes from its start.
constexpr int kDrawAmounts = 0;                             // uint64 [kDrawBins]
constexpr int kDrawGroups = kDrawAmounts + 8 * kDrawBins;   // uint64 [kDrawWarps]
constexpr int kDrawMasses = kDrawGroups + 8 * kDrawWarps;   // uint64 [kDrawDepths]
constexpr int kDrawCounts = kDrawMasses + 8 * kDrawDepths;  // int32 [kDrawDepths]
constexpr int kDrawWords = kDrawCounts + 4 * kDrawDepths;   // uint32 [4]
constexpr int kDrawLogits = kDrawWords + 4 * 4;             // float [kDrawListed]
constexpr int kDrawIds = kDrawLogits + 4 * kDrawListed;     // int32 [kDrawListed]
constexpr int kDrawSharedBytes = kDrawIds + 4 * kDrawListed;

}  // namespace renga::cuda
