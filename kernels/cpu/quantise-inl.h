// Codes of activations, over Vec, row by row. The definition is in ops_portable.cc;
// included after a vec_*-inl.h. AVX-512 has its own (quantise_avx512-inl.h).

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

// What a block's codes are made of, and what they are.
struct BlockCodes {
  float max_abs;
  bool coarse;
  float scale;
  int32_t sum;
  alignas(32) int8_t codes[kCodePlanes * kBlockValues];  // The high plane first.
};

static inline void QuantiseBlock(const float* x, BlockCodes& block) {
  const bool finite = block.max_abs < BitsFloat(0x7F800000u);  // Nor NaN.
  if (finite && block.max_abs >= 1e-30f) {
    block.scale = block.max_abs / kLargestCode;
    const float largest = block.coarse ? kLargestPlane : kLargestCode;
    block.sum =
        block.coarse
            ? RoundHighCodes(Load(x), Load(x + 16), largest / block.max_abs, block.codes)
            : RoundCodes(Load(x), Load(x + 16), largest / block.max_abs, block.codes);
    return;
  }
  block.scale = finite ? 0.0f : BitsFloat(0x7FC00000u);
  block.sum = 0;
  __builtin_memset(block.codes, 0, sizeof block.codes);
}

static inline float BlockMax(const float* x) {
  return BitsFloat(LargestMagnitude(Load(x), Load(x + 16)));
}

// Below it a block's max|x|^2 is coarse. Block b's max|x| is at max_abs[b * kTileRows].
static inline float CoarseLimit(const float* max_abs, int64_t blocks, float coarse) {
  if (!(coarse > 0.0f)) return 0.0f;
  float sum = 0.0f;
  for (int64_t b = 0; b < blocks; ++b) {
    const float max = max_abs[b * kTileRows];
    sum = sum + max * max;
  }
  return coarse * (sum / static_cast<float>(blocks));
}

// Row r of a tile.
static void QuantiseRow(const float* x, int64_t blocks, float coarse, int64_t r,
                        const QuantRows& tile) {
  // Each block's largest value waits where its scale will stand.
  float* scales = tile.scales + r;
  for (int64_t b = 0; b < blocks; ++b) {
    scales[b * kTileRows] = BlockMax(x + b * kBlockValues);
  }
  const float limit = CoarseLimit(scales, blocks, coarse);
  for (int64_t b = 0; b < blocks; ++b) {
    BlockCodes block;
    block.max_abs = scales[b * kTileRows];
    block.coarse = block.max_abs * block.max_abs < limit;
    QuantiseBlock(x + b * kBlockValues, block);
    const int8_t* codes = block.codes;
    const float scale = block.scale;
    const int32_t sum = block.sum;
    const unsigned fine_before = r > 0 ? tile.fine[b] : 0u;
    const unsigned fine = block.coarse ? 0u : 1u << r;
    tile.fine[b] = static_cast<uint8_t>(fine_before | fine);
    int8_t* target = tile.codes + b * kTileBlockCodes + r * 4;
    for (int64_t j = 0; j < 16; ++j) __builtin_memcpy(target + j * 32, codes + j * 4, 4);
    tile.scales[b * kTileRows + r] = scale;
    tile.scaled_sums[b * kTileRows + r] = scale * static_cast<float>(sum);
    tile.code_sums[b * kTileRows + r] = sum;
  }
}

// The place of a row that does not exist.
static void ClearRow(int64_t blocks, int64_t r, const QuantRows& tile) {
  for (int64_t b = 0; b < blocks; ++b) {
    int8_t* target = tile.codes + b * kTileBlockCodes + r * 4;
    for (int64_t j = 0; j < 16; ++j) __builtin_memset(target + j * 32, 0, 4);
    tile.scales[b * kTileRows + r] = 0.0f;
    tile.scaled_sums[b * kTileRows + r] = 0.0f;
    tile.code_sums[b * kTileRows + r] = 0;
  }
}

static void QuantiseRows(const QuantiseArgs& args) {
  const int64_t blocks = args.cols / kBlockValues;
  for (int64_t row = 0; row < (args.rows + kTileRows - 1) / kTileRows * kTileRows;
       ++row) {
    const QuantRows tile = TileOf(args.out, args.cols, row / kTileRows);
    if (row < args.rows) {
      QuantiseRow(args.x + row * args.x_stride, blocks, args.coarse, row % kTileRows,
                  tile);
    } else {
      ClearRow(blocks, row % kTileRows, tile);
    }
  }
}

}  // namespace RENGA_ISA
}  // namespace renga
