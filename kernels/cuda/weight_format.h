// How a weight lies in device memory. weight_format.cc packs, weight_decode.cuh reads.
//
// The unit is a run: a tile of 16 weight rows x 64 k, with its scales. A weight is tile
// after tile, a tile is run after run, so what one warp reads of a tile is one stretch of
// memory. Rows and k that are not there are zeros: ceil(rows / 16) tiles,
// PaddedCols(cols) / 64 runs, the whole rounded up to 256 bytes.
//
// Inside a run a lane's bytes are its own A fragments of 4 steps of mma.m16n8k16
// (context.h): lane 4 g + t, register r = hi + 2 j holds weight row g + 8 hi at two
// neighbouring k, elements e = 0, 1. Which k is free as long as x agrees:
//
//   k of (step s, t, j, e) = 32 (s / 2) + 8 t + 4 (s % 2) + 2 j + e          KOfFragment
//
// so a lane's x for two steps is 8 neighbours: one 16-byte load.
//
//   kF16, 2048 bytes   | step 0 | step 1 | step 2 | step 3 |           16 bits a weight
//     step   512 bytes: lane 0 .. 31, 16 bytes each: r = 0 .. 3, 4 bytes: e = 0, 1
//
//   kQ8, 1088 bytes    | scales 64 | block 0 | block 1 |               8.5
//     scales 8 x 8 bytes, g: f16 | row g: d0 d1 | row g + 8: d0 d1 |   (d of both blocks)
//     block  512 bytes (32 k, steps 2 b and 2 b + 1): lane 0 .. 31, 16 bytes each:
//            step, j, 4 bytes: | hi 0: e 0, e 1 | hi 1: e 0, e 1 |   code + 128
//
//   kQ4, 640 bytes     | scales 128 | codes 512 |                      5.0
//     scales 8 x 16 bytes, g: f16 | row g: d0 m0 d1 m1 | row g + 8: d0 m0 d1 m1 |
//     codes  lane 0 .. 31, 16 bytes each: step, 4 bytes: j + 2 e, low nibble hi 0, high
//            nibble hi 1 (so register r is at bits 4 r and 16 + 4 r)
//
//   kQ4K, 576 bytes, and 64 before every fourth run                    4.625
//     super  | heads 64 | 4 runs of 576 |                              256 k
//     heads  8 x 8 bytes, g: f16 | row g: d dmin | row g + 8: d dmin |
//     run    | scales 64 | codes 512 |
//     scales 8 x 8 bytes, g: | row g: s0 m0 s1 m1 | row g + 8: s0 m0 s1 m1 |
//     codes  as kQ4
//
// Thread safety: plain functions; pieces of one weight may be packed by several threads.

#pragma once

#include <stdint.h>

#include "kernels/block_format.h"
#include "kernels/cuda/context.h"

namespace renga::cuda {

enum class DeviceWeightType : uint8_t {
  kF16,  // F16; F32 and BF16, rounded to f16.
  kQ8,   // Q8_0: f16 d per 32 k.
  kQ4,   // Q4_1 and Q4_0 (m = -8 d): f16 d, f16 m per 32 k.
  kQ4K,  // Q4_K: f16 d, dmin per 256 k, 8-bit scale and min per 32 k.
};
constexpr int kDeviceWeightTypes = 4;

constexpr int32_t kWeightTileRows = 16;
constexpr int32_t kRunCols = 64;
constexpr int32_t kRunSteps = 4;       // Of mma.m16n8k16.
constexpr int32_t kProductSplits = 8;  // Parts of k that are summed apart.

constexpr int32_t kQ4KHeadBytes = 64;
constexpr int32_t kQ4KSuperRuns = 4;

// Activations have rows of so many f16, zeros behind cols.
RENGA_HOST_DEVICE constexpr int64_t PaddedCols(int64_t cols) {
  return (cols + kRunCols - 1) / kRunCols * kRunCols;
}
RENGA_HOST_DEVICE constexpr int32_t RunsOf(int64_t cols) {
  return static_cast<int32_t>(PaddedCols(cols) / kRunCols);
}

// Part `part` of k: runs [first, last). Sizes differ by one run at most; with fewer than
// kProductSplits runs some parts are empty, and those are not added.
struct RunRange {
  int32_t first = 0;
  int32_t last = 0;
};
RENGA_HOST_DEVICE constexpr RunRange SplitOf(int32_t runs, int32_t part) {
  return {static_cast<int32_t>(int64_t{runs} * part / kProductSplits),
          static_cast<int32_t>(int64_t{runs} * (part + 1) / kProductSplits)};
}

RENGA_HOST_DEVICE constexpr int32_t KOfFragment(int32_t step, int32_t t, int32_t j,
                                                int32_t e) {
  return 32 * (step / 2) + 8 * t + 4 * (step % 2) + 2 * j + e;
}

// Where weight (row, k) of a run is: the inverse of KOfFragment.
struct FragmentPlace {
  int32_t lane = 0;
  int32_t step = 0;
  int32_t hi = 0;  // Register hi + 2 j.
  int32_t j = 0;
  int32_t e = 0;
};
RENGA_HOST_DEVICE constexpr FragmentPlace PlaceOf(int32_t row, int32_t k) {
  return {.lane = 4 * (row % 8) + k % 32 / 8,
          .step = 2 * (k / 32) + k % 8 / 4,
          .hi = row / 8,
          .j = k % 4 / 2,
          .e = k % 2};
}

RENGA_HOST_DEVICE constexpr int32_t RunBytes(DeviceWeightType type) {
  switch (type) {
    case DeviceWeightType::kF16:
      return 2048;
    case DeviceWeightType::kQ8:
      return 64 + 1024;
    case DeviceWeightType::kQ4:
      return 128 + 512;
    case DeviceWeightType::kQ4K:
      return 64 + 512;
  }
  return 0;
}
// Of a run in shared memory: a kQ4K run has the heads of its super block before it.
RENGA_HOST_DEVICE constexpr int32_t StagedBytes(DeviceWeightType type) {
  return RunBytes(type) + (type == DeviceWeightType::kQ4K ? kQ4KHeadBytes : 0);
}
// Where the codes begin in a run.
RENGA_HOST_DEVICE constexpr int32_t ScaleBytes(DeviceWeightType type) {
  return RunBytes(type) % 512;
}

// Where run `run` begins in its tile.
RENGA_HOST_DEVICE constexpr int64_t RunOffset(DeviceWeightType type, int32_t run) {
  const int64_t heads = type == DeviceWeightType::kQ4K ? run / kQ4KSuperRuns + 1 : 0;
  return heads * kQ4KHeadBytes + int64_t{run} * RunBytes(type);
}
// Where the heads of a kQ4K run's super block are in its tile.
RENGA_HOST_DEVICE constexpr int64_t Q4KHeadOffset(int32_t run) {
  return RunOffset(DeviceWeightType::kQ4K, run / kQ4KSuperRuns * kQ4KSuperRuns) -
         kQ4KHeadBytes;
}
RENGA_HOST_DEVICE constexpr int64_t TileBytes(DeviceWeightType type, int64_t cols) {
  const int32_t runs = RunsOf(cols);
  const int64_t heads =
      type == DeviceWeightType::kQ4K ? (runs + kQ4KSuperRuns - 1) / kQ4KSuperRuns : 0;
  return heads * kQ4KHeadBytes + int64_t{runs} * RunBytes(type);
}

// Where the byte with the code of a place is, from the start of the codes; for kF16 the
// first of two bytes, for the 4-bit types the nibble is `hi`.
RENGA_HOST_DEVICE constexpr int32_t CodeOffset(DeviceWeightType type,
                                               const FragmentPlace& at) {
  const int32_t lane = 16 * at.lane;
  switch (type) {
    case DeviceWeightType::kF16:
      return 512 * at.step + lane + 4 * (at.hi + 2 * at.j) + 2 * at.e;
    case DeviceWeightType::kQ8:
      return 512 * (at.step / 2) + lane + 8 * (at.step % 2) + 4 * at.j + 2 * at.hi + at.e;
    case DeviceWeightType::kQ4:
    case DeviceWeightType::kQ4K:
      return lane + 4 * at.step + at.j + 2 * at.e;
  }
  return 0;
}

DeviceWeightType DeviceTypeOf(WeightType type);

// Bytes of a packed weight; a multiple of 256.
int64_t DeviceWeightBytes(DeviceWeightType type, int64_t rows, int64_t cols);

// Packs `rows` rows in the layout of a file (kernels/block_format.h), row by row, into a
// weight of `total_rows` rows from row `first_row` on, which must be a multiple of 16:
// matrices that are stacked share one weight if all but the last have such rows. The
// tiles of the piece are written whole, rows of the last one that are not there as zeros.
// REQUIRES: cols % FileBlockValues(type) == 0 and cols % 8 == 0; all pieces of one
// weight have one DeviceTypeOf; first_row + rows <= total_rows. `out` is the whole
// weight.
struct PackArgs {
  WeightType type{};
  const uint8_t* file = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first_row = 0;
  int64_t total_rows = 0;
  uint8_t* out = nullptr;
};
// False: a value does not fit an f16, so the weight is not usable: F32 and BF16 beyond
// 65504, NaN, infinity; blocks with codes of which one might become such a value (Q4_0:
// also if -8 d does).
bool PackDeviceWeight(const PackArgs& args);

}  // namespace renga::cuda
