// Products with F32 and F16 weights, over Vec: acc = fma(w, x, acc) in order of k, up to
// kFloatRows rows at a time. Included after a vec_*-inl.h.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

// Writes 32 outputs of one row, of which `outputs` (1..32) exist.
static inline void StoreOutputs(float* out, Vec a, Vec b, int64_t outputs, bool add) {
  if (outputs >= 32) {
    if (add) a = Add(Load(out), a);
    if (add) b = Add(Load(out + 16), b);
    Store(out, a);
    Store(out + 16, b);
    return;
  }
  if (add) a = Add(LoadN(out, outputs), a);
  StoreN(out, a, outputs);
  if (outputs <= 16) return;
  if (add) b = Add(LoadN(out + 16, outputs - 16), b);
  StoreN(out + 16, b, outputs - 16);
}

template <class Weight, int kRows>
static inline void FloatTile(const MatmulArgs& args, const Weight* panel, int64_t row,
                             float* out, int64_t outputs) {
  Vec acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = Zero();
  const float* x = args.x + row * args.x_stride;
  for (int64_t k = 0; k < args.cols; ++k) {
    const Vec w0 = Load(panel + k * kPanelRows);
    const Vec w1 = Load(panel + k * kPanelRows + 16);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec xs = Set(x[r * args.x_stride + k]);
      acc[r][0] = Fma(w0, xs, acc[r][0]);
      acc[r][1] = Fma(w1, xs, acc[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    StoreOutputs(out + (row + r) * args.out_stride, acc[r][0], acc[r][1], outputs,
                 args.add);
  }
}

template <class Weight>
static void MatmulFloat(const MatmulArgs& args) {
  for (int64_t p = 0; p < args.panel_count; ++p) {
    const Weight* panel =
        reinterpret_cast<const Weight*>(args.panels) + p * args.cols * kPanelRows;
    float* out = args.out + p * kPanelRows;
    const int64_t outputs = args.outputs - p * kPanelRows;
    int64_t row = 0;
    for (; row + kFloatRows <= args.rows; row += kFloatRows) {
      FloatTile<Weight, kFloatRows>(args, panel, row, out, outputs);
    }
    for (; row < args.rows; ++row) FloatTile<Weight, 1>(args, panel, row, out, outputs);
  }
}

}  // namespace RENGA_ISA
}  // namespace renga
