// Products of few rows (decode): bound by reading the weights once.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/product_shape.h"
#include "kernels/cuda/weight_decode.cuh"

namespace renga::cuda {

// One warp's part of ProductSmall.
template <DeviceWeightType kType, int kRows, class Ctx>
class SmallPart {
 public:
  static constexpr SmallShape kShape = SmallShapeOf(kType, kRows);
  static constexpr int kTiles = kShape.tiles;
  static constexpr int kOutputs = kTiles * kWeightTileRows;
  static constexpr int kRowTiles = (kRows + 7) / 8;
  static constexpr int kPieces = kStagedPieces<kType>;
  // f32 from one row of a part to the next: the 32 stores of a fragment fall into as many
  // banks.
  static constexpr int kPitch = kOutputs + 4;
  static_assert(kRows * kPitch * 4 <= kShape.warp_bytes);

  // `rows`: how many of kRows there are.
  RENGA_DEVICE SmallPart(Ctx& ctx, const ProductArgs& args, int rows)
      : args_(args), rows_(rows), ring_(ctx.template Shared<uint8_t>(0)) {
    ring_ += ctx.warp() * kShape.warp_bytes;
    first_tile_ = ctx.block_x() * kTiles;
    const int tiles = (args.outputs + kWeightTileRows - 1) / kWeightTileRows;
    tiles_here_ = tiles - first_tile_ < kTiles ? tiles - first_tile_ : kTiles;
  }

  // Sums the part; then its sums are in shared memory, at SumAt.
  RENGA_DEVICE void Sum(Ctx& ctx) {
    const RunRange part = SplitOf(RunsOf(args_.cols), ctx.warp());
    RENGA_UNROLL
    for (int i = 0; i < kShape.stages - 1; ++i) {
      if (part.first + i < part.last) Copy(ctx, part.first + i, i);
      ctx.CopyCommit();
    }
    int slot = 0;
    RENGA_NO_UNROLL
    for (int run = part.first; run < part.last; ++run) {
      ctx.template CopyWait<kShape.stages - 2>();
      ctx.WarpSync();  // The others' copies are there, and they are done with the last
                       // slot.
      const int ahead = run + kShape.stages - 1;
      if (ahead < part.last) Copy(ctx, ahead, slot == 0 ? kShape.stages - 1 : slot - 1);
      ctx.CopyCommit();
      Multiply(ctx, ring_ + slot * kShape.stage_bytes);
      slot = slot + 1 == kShape.stages ? 0 : slot + 1;
    }
    ctx.template CopyWait<0>();
    ctx.WarpSync();
    Store(ctx);
  }

  // Of a whole block: output `output` (of kOutputs), row `row` of part `part`.
  RENGA_DEVICE static const float* SumAt(Ctx& ctx, int part, int row, int output) {
    return ctx.template Shared<float>(part * kShape.warp_bytes) + row * kPitch + output;
  }

 private:
  static constexpr int kXOffset = kTiles * kStagedBytes<kType>;

  // Where piece `half` of the x of this lane's row in row tile j is in a stage; the lane
  // that copies it reads it.
  RENGA_DEVICE static int XOffset(int lane, int j, int half) {
    constexpr int kLanes = kRows < 8 ? kRows * 4 : kWarp;
    return kXOffset + ((j * 2 + half) * kLanes + lane) * kPieceBytes;
  }

  RENGA_DEVICE void Copy(Ctx& ctx, int run, int slot) const {
    uint8_t* stage = ring_ + slot * kShape.stage_bytes;
    const int lane = ctx.lane();
    RENGA_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile >= tiles_here_) break;
      const uint8_t* from =
          args_.weights + (first_tile_ + tile) * TileBytes(kType, args_.cols);
      RENGA_UNROLL
      for (int i = 0; i < kPieces; i += kWarp) {
        const int piece = i + lane;
        if (i + kWarp > kPieces && piece >= kPieces) break;
        ctx.CopyAsync16(stage + tile * kStagedBytes<kType> + piece * kPieceBytes,
                        from + StagedOffset<kType>(run, piece), true);
      }
    }
    RENGA_UNROLL
    for (int j = 0; j < kRowTiles; ++j) {
      const int row = 8 * j + lane / 4;
      if (row >= rows_) break;
      const uint16_t* from =
          args_.x + row * args_.x_stride + run * kRunCols + lane % 4 * 8;
      ctx.CopyAsync16(stage + XOffset(lane, j, 0), from, true);
      ctx.CopyAsync16(stage + XOffset(lane, j, 1), from + 32, true);
    }
  }

  RENGA_DEVICE void Multiply(Ctx& ctx, const uint8_t* stage) {
    Vec16 x[kRowTiles][2] = {};  // Of rows that are not there: zeros.
    RENGA_UNROLL
    for (int j = 0; j < kRowTiles; ++j) {
      if (8 * j + ctx.lane() / 4 >= rows_) break;
      x[j][0] = ctx.SharedLoad16(stage + XOffset(ctx.lane(), j, 0));
      x[j][1] = ctx.SharedLoad16(stage + XOffset(ctx.lane(), j, 1));
    }
    RENGA_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile >= tiles_here_) break;
      WeightRun<kType> weights;
      weights.Load(ctx, stage + tile * kStagedBytes<kType>);
      RENGA_UNROLL
      for (int step = 0; step < kRunSteps; ++step) {
        uint32_t a[4];
        weights.Fragment(step, a);
        RENGA_UNROLL
        for (int j = 0; j < kRowTiles; ++j) {
          const Vec16& pair = x[j][step / 2];
          const uint32_t b[2] = {pair.word[step % 2 * 2], pair.word[step % 2 * 2 + 1]};
          ctx.MmaF16(sums_[tile][j], a, b);
        }
      }
    }
  }

  // Into the warp's own ring, which is empty by now.
  RENGA_DEVICE void Store(Ctx& ctx) const {
    float* part = reinterpret_cast<float*>(ring_);
    const int g = ctx.lane() / 4;
    const int t = ctx.lane() % 4;
    RENGA_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      RENGA_UNROLL
      for (int j = 0; j < kRowTiles; ++j) {
        RENGA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int row = 8 * j + 2 * t + i % 2;
          const int output = tile * kWeightTileRows + g + i / 2 * 8;
          if (row < rows_) part[row * kPitch + output] = sums_[tile][j][i];
        }
      }
    }
  }

  const ProductArgs& args_;
  const int rows_;
  uint8_t* ring_;
  int first_tile_;
  int tiles_here_;
  float sums_[kTiles][kRowTiles][4] = {};
};

// out[row][o] (+)= sum over k of x[row][k] w[o][k], for at most kRows rows.
// Shapes: ProductArgs; rows beyond *args.rows are neither read nor written.
// Launch: ceil(outputs / (16 tiles)) blocks of 8 warps; SmallShapeOf. Warp w sums part w
// of k, cp.async into a ring of its own, no barrier; then the block adds the parts in
// order. Traffic: the weights once from memory; x once per block, from the L2 cache.
template <DeviceWeightType kType, int kRows, class Ctx>
RENGA_DEVICE void ProductSmall(Ctx& ctx, const ProductArgs& args) {
  using Part = SmallPart<kType, kRows, Ctx>;
  const int count = *args.rows;
  const int rows = count < kRows ? count : kRows;
  if (rows <= 0) return;
  Part mine(ctx, args, rows);
  mine.Sum(ctx);
  ctx.Barrier();
  const int runs = RunsOf(args.cols);
  RENGA_NO_UNROLL
  for (int i = ctx.thread(); i < rows * Part::kOutputs; i += SmallShape::kThreads) {
    const int row = i / Part::kOutputs;
    const int at = i % Part::kOutputs;
    const int output = ctx.block_x() * Part::kOutputs + at;
    if (output >= args.outputs) continue;
    float sum = 0.0f;
    RENGA_UNROLL
    for (int part = 0; part < kProductSplits; ++part) {
      const RunRange range = SplitOf(runs, part);
      if (range.first < range.last) sum += *Part::SumAt(ctx, part, row, at);
    }
    float* out = args.out + row * args.out_stride + output;
    *out = args.add != 0 ? *out + sum : sum;
  }
}

}  // namespace renga::cuda
