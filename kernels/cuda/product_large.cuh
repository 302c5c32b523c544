// Products of many rows (prefill, large batches): bound by the tensor cores.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/product_shape.h"
#include "kernels/cuda/weight_decode.cuh"

namespace renga::cuda {

// One warp's share of ProductLarge: 32 outputs x kSide / 2 rows.
template <DeviceWeightType kType, int kSide, class Ctx>
class LargeTile {
 public:
  static constexpr LargeShape kShape = LargeShapeOf(kType, kSide);
  static constexpr int kTiles = kSide / kWeightTileRows;  // Of the block.
  static constexpr int kWarpTiles = 2;
  static constexpr int kWarpRows = kSide / 2;
  static constexpr int kRowTiles = kWarpRows / 8;

  RENGA_DEVICE LargeTile(Ctx& ctx, const ProductArgs& args, int rows)
      : args_(args),
        ring_(ctx.template Shared<uint8_t>(0)),
        first_tile_(ctx.block_x() * kTiles),
        first_row_(ctx.block_y() * kSide),
        rows_(rows) {
    const int tiles = (args.outputs + kWeightTileRows - 1) / kWeightTileRows;
    tiles_here_ = tiles - first_tile_ < kTiles ? tiles - first_tile_ : kTiles;
  }

  RENGA_DEVICE void Sum(Ctx& ctx) {
    const int runs = RunsOf(args_.cols);
    RENGA_UNROLL
    for (int i = 0; i < kShape.stages - 1; ++i) {
      if (i < runs) Copy(ctx, i, i);
      ctx.CopyCommit();
    }
    int slot = 0;
    int part = 0;
    int part_end = SplitOf(runs, 0).last;
    RENGA_NO_UNROLL
    for (int run = 0; run < runs; ++run) {
      ctx.template CopyWait<kShape.stages - 2>();
      ctx.Barrier();  // The others' copies are there, and they are done with the last
                      // slot.
      const int ahead = run + kShape.stages - 1;
      if (ahead < runs) Copy(ctx, ahead, slot == 0 ? kShape.stages - 1 : slot - 1);
      ctx.CopyCommit();
      Multiply(ctx, ring_ + slot * kShape.stage_bytes);
      slot = slot + 1 == kShape.stages ? 0 : slot + 1;
      while (part_end <= run) part_end = SplitOf(runs, ++part).last;  // Empty parts.
      if (run + 1 == part_end) EndPart();
    }
    ctx.template CopyWait<0>();
  }

  RENGA_DEVICE void Store(Ctx& ctx) const {
    const int g = ctx.lane() / 4;
    const int t = ctx.lane() % 4;
    RENGA_UNROLL
    for (int j = 0; j < kRowTiles; ++j) {
      RENGA_UNROLL
      for (int tile = 0; tile < kWarpTiles; ++tile) {
        RENGA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int row = first_row_ + WarpRow(ctx) + 8 * j + 2 * t + i % 2;
          const int output =
              (first_tile_ + WarpTile(ctx) + tile) * kWeightTileRows + g + i / 2 * 8;
          if (row >= rows_ || output >= args_.outputs) continue;
          float* out = args_.out + row * args_.out_stride + output;
          const float sum = totals_[tile][j][i];
          *out = args_.add != 0 ? *out + sum : sum;
        }
      }
    }
  }

 private:
  static constexpr int kXOffset = kTiles * kStagedBytes<kType>;

  RENGA_DEVICE static int WarpTile(Ctx& ctx) { return ctx.warp() / 2 * kWarpTiles; }
  RENGA_DEVICE static int WarpRow(Ctx& ctx) { return ctx.warp() % 2 * kWarpRows; }

  // Piece `piece` (8 k) of the x of a row: rows of 128 bytes, every other one turned by
  // 64, so that 8 lanes that read pieces t of two rows have all banks.
  RENGA_DEVICE static int XOffset(int row, int piece) {
    return kXOffset + (row * 8 + (piece ^ (row % 2 * 4))) * kPieceBytes;
  }

  RENGA_DEVICE void Copy(Ctx& ctx, int run, int slot) const {
    uint8_t* stage = ring_ + slot * kShape.stage_bytes;
    constexpr int kPieces = kStagedPieces<kType>;
    RENGA_UNROLL
    for (int i = 0; i < kTiles * kPieces; i += kShape.threads) {
      const int at = i + ctx.thread();
      if (i + kShape.threads > kTiles * kPieces && at >= kTiles * kPieces) break;
      const int tile = at / kPieces;
      const uint8_t* from = args_.weights +
                            (first_tile_ + tile) * TileBytes(kType, args_.cols) +
                            StagedOffset<kType>(run, at % kPieces);
      ctx.CopyAsync16(stage + at * kPieceBytes, from, tile < tiles_here_);
    }
    RENGA_UNROLL
    for (int i = 0; i < kSide * 8; i += kShape.threads) {
      const int row = (i + ctx.thread()) / 8;
      const int piece = (i + ctx.thread()) % 8;
      const uint16_t* from =
          args_.x + (first_row_ + row) * args_.x_stride + run * kRunCols + piece * 8;
      ctx.CopyAsync16(stage + XOffset(row, piece), from, first_row_ + row < rows_);
    }
  }

  // Two steps of mma at a time: 32 k, for which a lane's x is one piece.
  RENGA_DEVICE void Multiply(Ctx& ctx, const uint8_t* stage) {
    WeightRun<kType> weights[kWarpTiles];
    RENGA_UNROLL
    for (int tile = 0; tile < kWarpTiles; ++tile) {
      weights[tile].Load(ctx, stage + (WarpTile(ctx) + tile) * kStagedBytes<kType>);
    }
    const int g = ctx.lane() / 4;
    const int t = ctx.lane() % 4;
    RENGA_UNROLL
    for (int half = 0; half < 2; ++half) {
      uint32_t a[kWarpTiles][2][4];
      RENGA_UNROLL
      for (int tile = 0; tile < kWarpTiles; ++tile) {
        weights[tile].Fragment(2 * half, a[tile][0]);
        weights[tile].Fragment(2 * half + 1, a[tile][1]);
      }
      RENGA_UNROLL
      for (int j = 0; j < kRowTiles; ++j) {
        const Vec16 x =
            ctx.SharedLoad16(stage + XOffset(WarpRow(ctx) + 8 * j + g, 4 * half + t));
        RENGA_UNROLL
        for (int step = 0; step < 2; ++step) {
          const uint32_t b[2] = {x.word[2 * step], x.word[2 * step + 1]};
          RENGA_UNROLL
          for (int tile = 0; tile < kWarpTiles; ++tile) {
            ctx.MmaF16(sums_[tile][j], a[tile][step], b);
          }
        }
      }
    }
  }

  RENGA_DEVICE void EndPart() {
    RENGA_UNROLL
    for (int tile = 0; tile < kWarpTiles; ++tile) {
      RENGA_UNROLL
      for (int j = 0; j < kRowTiles; ++j) {
        RENGA_UNROLL
        for (int i = 0; i < 4; ++i) {
          totals_[tile][j][i] += sums_[tile][j][i];
          sums_[tile][j][i] = 0.0f;
        }
      }
    }
  }

  const ProductArgs& args_;
  uint8_t* ring_;
  const int first_tile_;
  const int first_row_;
  const int rows_;
  int tiles_here_;
  float sums_[kWarpTiles][kRowTiles][4] = {};  // Of the part.
  float totals_[kWarpTiles][kRowTiles][4] = {};
};

// As ProductSmall, bit by bit, for any number of rows.
// Shapes: ProductArgs; rows beyond *args.rows are neither read nor written.
// Launch: ceil(outputs / kSide) x ceil(rows / kSide) blocks of LargeShapeOf; blocks
// beyond the device's count return. Traffic: weights once per kSide rows (a warp decodes
// them for kSide / 2), x once per kSide outputs.
template <DeviceWeightType kType, int kSide, class Ctx>
RENGA_DEVICE void ProductLarge(Ctx& ctx, const ProductArgs& args) {
  const int rows = *args.rows;
  if (ctx.block_y() * kSide >= rows) return;
  LargeTile<kType, kSide, Ctx> tile(ctx, args, rows);
  tile.Sum(ctx);
  tile.Store(ctx);
}

}  // namespace renga::cuda
