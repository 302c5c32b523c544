// Kernels that read packed weights: products, embedding, dequantisation, and their list.

#pragma once

#include <stdint.h>

#include "kernels/cuda/product_large.cuh"
#include "kernels/cuda/product_small.cuh"

namespace renga::cuda {

// x[row][c] = w[tokens[row]][c], rounded once to f32; NaN for a token that is not in the
// vocabulary.
// Shapes: EmbedArgs. Launch: rows x ceil(dim / 256) blocks of 256.
// Traffic: twice the bytes of the row (a sector has the codes of two rows).
template <DeviceWeightType kType, class Ctx>
RENGA_DEVICE void Embed(Ctx& ctx, const EmbedArgs& args) {
  const int row = ctx.block_x();
  if (row >= *args.rows) return;
  const int col = ctx.block_y() * kEmbedThreads + ctx.thread();
  if (col >= args.dim) return;
  const int token = args.tokens[row];
  const bool known = token >= 0 && token < args.vocab;
  args.x[int64_t{row} * args.dim + col] =
      known ? WeightElement<kType>(args.weights, args.dim, token, col)
            : BitsAsFloat(0x7FC00000u);
}

// out[o][k] = the f16 that the products use for weight (o, k).
// Shapes: DequantiseArgs. Launch: tiles x ceil(runs / 4) blocks of 4 warps, one run a
// warp. Traffic: the weights once, the f16 once.
template <DeviceWeightType kType, class Ctx>
RENGA_DEVICE void Dequantise(Ctx& ctx, const DequantiseArgs& args) {
  const int run = ctx.block_y() * kDequantiseWarps + ctx.warp();
  if (run >= RunsOf(args.cols)) return;
  const int tile = ctx.block_x();
  uint8_t* staged = ctx.template Shared<uint8_t>(ctx.warp() * kStagedBytes<kType>);
  const uint8_t* from = args.weights + tile * TileBytes(kType, args.cols);
  for (int piece = ctx.lane(); piece < kStagedPieces<kType>; piece += kWarp) {
    ctx.CopyAsync16(staged + piece * kPieceBytes, from + StagedOffset<kType>(run, piece),
                    true);
  }
  ctx.CopyCommit();
  ctx.template CopyWait<0>();
  ctx.WarpSync();
  WeightRun<kType> weights;
  weights.Load(ctx, staged);
  RENGA_UNROLL
  for (int half = 0; half < 2; ++half) {
    uint32_t a[2][4];
    weights.Fragment(2 * half, a[0]);
    weights.Fragment(2 * half + 1, a[1]);
    RENGA_UNROLL
    for (int hi = 0; hi < 2; ++hi) {
      const int output = tile * kWeightTileRows + ctx.lane() / 4 + 8 * hi;
      if (output >= args.outputs) continue;
      const int64_t at = output * PaddedCols(args.cols) + run * kRunCols + 32 * half +
                         ctx.lane() % 4 * 8;
      ctx.Store16(args.out + at, {{a[0][hi], a[0][hi + 2], a[1][hi], a[1][hi + 2]}});
    }
  }
}

}  // namespace renga::cuda

// id = 100 + 10 type + what (product.h: ProductKernel).
#define RENGA_PRODUCT_KERNELS_OF(X, T)                                                \
  X(kProduct4##T, ProductArgs, 256, 3, (ProductSmall<DeviceWeightType::k##T, 4>))     \
  X(kProduct8##T, ProductArgs, 256, 2, (ProductSmall<DeviceWeightType::k##T, 8>))     \
  X(kProduct16##T, ProductArgs, 256, 2, (ProductSmall<DeviceWeightType::k##T, 16>))   \
  X(kProduct64##T, ProductArgs, 128, 3, (ProductLarge<DeviceWeightType::k##T, 64>))   \
  X(kProduct128##T, ProductArgs, 256, 1, (ProductLarge<DeviceWeightType::k##T, 128>)) \
  X(kEmbed##T, EmbedArgs, 256, 4, (Embed<DeviceWeightType::k##T>))                    \
  X(kDequantise##T, DequantiseArgs, 128, 4, (Dequantise<DeviceWeightType::k##T>))

#define RENGA_PRODUCT_KERNELS(X)   \
  RENGA_PRODUCT_KERNELS_OF(X, F16) \
  RENGA_PRODUCT_KERNELS_OF(X, Q8)  \
  RENGA_PRODUCT_KERNELS_OF(X, Q4)  \
  RENGA_PRODUCT_KERNELS_OF(X, Q4K)
