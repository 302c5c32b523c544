#include "kernels/cpu/same_products.h"

#include <string.h>

namespace renga {

namespace {

constexpr int64_t kRows =
    25;  // Whole tiles of 8 and of 16 rows, and the start of the next.
constexpr int64_t kTiles = (kRows + kTileRows - 1) / kTileRows;
constexpr int64_t kCols = kSuperValues;
constexpr int64_t kBlocks = kCols / kBlockValues;
constexpr int64_t kPanel = kQ8_0PanelBlockBytes * kBlocks;  // The largest.

// Numerical Recipes' generator; the upper bits.
uint32_t NextRandom(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

struct Rows {
  int8_t codes[kTiles * kBlocks * kTileBlockCodes] = {};
  float scales[kTiles * kBlocks * kTileRows] = {};
  float scaled_sums[kTiles * kBlocks * kTileRows] = {};
  int32_t code_sums[kTiles * kBlocks * kTileRows] = {};
  uint8_t fine[kTiles * kBlocks] = {};

  QuantRows rows() { return {codes, scales, scaled_sums, code_sums, fine}; }
};

// Some blocks stand out, so that they are fine and the others coarse.
void MakeRows(const CpuOps& ops, Rows& rows) {
  uint32_t random = 1;
  float x[kRows][kCols];
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t k = 0; k < kCols; ++k) {
      const float value = static_cast<float>(NextRandom(random) % 2001) - 1000.0f;
      x[row][k] = (k / kBlockValues + row / kTileRows) % 3 == 0 ? value * 8.0f : value;
    }
  }
  ops.quantise_rows({.x = x[0],
                     .x_stride = kCols,
                     .rows = kRows,
                     .cols = kCols,
                     .coarse = 2.56f,
                     .out = rows.rows()});
}

}  // namespace

bool SameProducts(const CpuOps& a, const CpuOps& b) {
  Rows rows;
  MakeRows(b, rows);
  uint8_t panel[kPanel];
  uint32_t random = 2;
  // Any f16 in it is finite: the highest bit of its exponent is 0.
  for (int64_t i = 0; i < kPanel; ++i) {
    panel[i] = static_cast<uint8_t>(NextRandom(random) & (i % 2 == 0 ? 0xFF : 0xBF));
  }
  using Product = void (*)(const MatmulArgs&);
  const Product products[][2] = {{a.matmul_q4_1, b.matmul_q4_1},
                                 {a.matmul_q4_k, b.matmul_q4_k},
                                 {a.matmul_q8_0, b.matmul_q8_0}};
  for (const auto& pair : products) {
    float out[2][kRows * kPanelRows] = {};
    for (int i = 0; i < 2; ++i) {
      MatmulArgs args;
      args.panels = panel;
      args.panel_count = 1;
      args.cols = kCols;
      args.outputs = kPanelRows;
      args.quant = rows.rows();
      args.rows = kRows;
      args.out = out[i];
      args.out_stride = kPanelRows;
      pair[i](args);
    }
    for (int64_t i = 0; i < kRows * kPanelRows; ++i) {
      if (FloatBits(out[0][i]) != FloatBits(out[1][i])) return false;
    }
  }
  return true;
}

}  // namespace renga
