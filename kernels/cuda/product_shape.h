// Tiles, rings and shared memory of the product kernels: what a body (product_small.cuh,
// product_large.cuh) and its launch (product.cc) have to agree on. None of it changes a
// bit of a result: that is SplitOf's alone (weight_format.h).

#pragma once

#include <stdint.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/weight_format.h"

namespace renga::cuda {

constexpr int32_t kEmbedThreads = 256;
constexpr int32_t kDequantiseWarps = 4;

// As many stages as fit, from 2 to `most`.
RENGA_HOST_DEVICE constexpr int32_t StagesIn(int32_t budget, int32_t stage_bytes,
                                             int32_t most) {
  const int32_t stages = budget / stage_bytes;
  return stages < 2 ? 2 : stages > most ? most : stages;
}

// ProductSmall: a block has all rows (up to `rows`: 4, 8, 16) of `tiles` tiles of
// outputs; warp w sums part w of k through a ring of its own, one run a stage. With more
// rows two tiles share x, which every block reads for itself from the L2 cache.
struct SmallShape {
  static constexpr int32_t kWarps = kProductSplits;
  static constexpr int32_t kThreads = kWarps * kWarp;

  int32_t tiles = 0;
  int32_t stage_bytes = 0;  // Of a warp: the staged runs of its tiles, then x.
  int32_t stages = 0;
  int32_t warp_bytes = 0;
  int32_t shared_bytes = 0;
};
RENGA_HOST_DEVICE constexpr SmallShape SmallShapeOf(DeviceWeightType type, int32_t rows) {
  SmallShape shape;
  shape.tiles = rows > 4 ? 2 : 1;
  shape.stage_bytes = shape.tiles * StagedBytes(type) + rows * kRunCols * 2;
  // 64 KiB: three blocks on an SM of 228 KiB.
  const int32_t budget = (rows > 4 ? 96 : 64) * 1024;
  shape.stages = StagesIn(budget / SmallShape::kWarps, shape.stage_bytes, 6);
  shape.warp_bytes = shape.stages * shape.stage_bytes;
  shape.shared_bytes = SmallShape::kWarps * shape.warp_bytes;
  return shape;
}

// ProductLarge: a block has a square of `side` outputs x `side` rows; all its warps share
// a ring of stages of one run. A warp has 32 outputs x side / 2 rows.
struct LargeShape {
  int32_t threads = 0;
  int32_t stage_bytes = 0;  // The staged runs of the outputs, then x.
  int32_t stages = 0;
  int32_t shared_bytes = 0;
};
RENGA_HOST_DEVICE constexpr LargeShape LargeShapeOf(DeviceWeightType type, int32_t side) {
  LargeShape shape;
  shape.threads = side / 32 * 2 * kWarp;
  shape.stage_bytes = side / kWeightTileRows * StagedBytes(type) + side * kRunCols * 2;
  shape.stages = 3;
  shape.shared_bytes = shape.stages * shape.stage_bytes;
  return shape;
}

}  // namespace renga::cuda
