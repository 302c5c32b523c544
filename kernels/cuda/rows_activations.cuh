// Bodies of the ops on rows of activations: norm and SwiGLU. See rows.h.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/rows_shape.h"
#include "kernels/cuda/words.h"

namespace renga::cuda {

// Elements [at, at + 4) of an array of n that starts at a multiple of n floats: at 16
// bytes only if n % 4 == 0. Zeros behind its end.
template <class Ctx>
RENGA_DEVICE void LoadFour(Ctx& ctx, const float* array, int at, int n, float (&v)[4]) {
  if ((n & 3) == 0) {
    Vec16 bits = {{0, 0, 0, 0}};
    if (at < n) bits = ctx.Load16(array + at);
    RENGA_UNROLL
    for (int i = 0; i < 4; ++i) v[i] = BitsAsFloat(bits.word[i]);
    return;
  }
  RENGA_UNROLL
  for (int i = 0; i < 4; ++i) v[i] = at + i < n ? array[at + i] : 0.0f;
}

// The same places of an f16 row, which starts at 8 bytes; nothing behind its end.
RENGA_DEVICE void StoreFour(uint16_t* array, int at, int n, const float (&v)[4]) {
  if (at + 4 <= n) {
    const uint64_t low = PackHalf2(v[0], v[1]);
    const uint64_t high = PackHalf2(v[2], v[3]);
    *reinterpret_cast<uint64_t*>(array + at) = low | high << 32;
    return;
  }
  RENGA_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (at + i < n) array[at + i] = FloatToHalf(v[i]);
  }
}

// out[i] = f16((x[i] * r) * weight[i]), r = 1 / sqrt(sum(x^2) / n + eps).
// Shapes: x [.][n], weight [n], out [rows][out_stride]; n <= 1024 kVecs.
// Launch: block per row, 256 threads; a thread holds 4 kVecs elements. The sum: each
// thread's elements in order, a tree over the lanes of a warp, the warps in order; so it
// depends on n alone. Shared: 8 floats.
// Traffic: x once, out once; weight from L2 but for the first row.
template <int kVecs, class Ctx>
RENGA_DEVICE void RmsNorm(Ctx& ctx, const RmsNormArgs& args) {
  constexpr int kWarps = kRowThreads / kWarp;
  const int row = ctx.block_x();
  if (row >= *args.row_count) return;
  const int64_t from = args.source != nullptr ? args.source[row] : row;
  const float* x = args.x + from * args.n;
  float v[kVecs][4];
  float sum = 0.0f;
  RENGA_UNROLL
  for (int vec = 0; vec < kVecs; ++vec) {
    LoadFour(ctx, x, (vec * kRowThreads + ctx.thread()) * 4, args.n, v[vec]);
  }
  RENGA_UNROLL
  for (int vec = 0; vec < kVecs; ++vec) {
    RENGA_UNROLL
    for (int i = 0; i < 4; ++i) sum = Fma(v[vec][i], v[vec][i], sum);
  }
  RENGA_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) sum += ctx.ShuffleXor(sum, mask);
  float* sums = ctx.template Shared<float>(0);  // [kWarps]
  if (ctx.lane() == 0) sums[ctx.warp()] = sum;
  ctx.Barrier();
  float total = sums[0];
  RENGA_UNROLL
  for (int warp = 1; warp < kWarps; ++warp) total += sums[warp];
  const float r = Rsqrt(Divide(total, static_cast<float>(args.n)) + args.eps);
  uint16_t* out = args.out + row * args.out_stride;
  RENGA_UNROLL
  for (int vec = 0; vec < kVecs; ++vec) {
    const int at = (vec * kRowThreads + ctx.thread()) * 4;
    float weight[4];
    LoadFour(ctx, args.weight, at, args.n, weight);
    RENGA_UNROLL
    for (int i = 0; i < 4; ++i) v[vec][i] = (v[vec][i] * r) * weight[i];
    StoreFour(out, at, args.n, v[vec]);
  }
}

// out[i] = f16((g / (1 + exp2(-g log2 e))) * u).
// Shapes: gate_up [rows][2 ffn], out [rows][out_stride].
// Launch: grid (rows, ffn / 1024), 256 threads of 4 elements. Shared: none.
// Traffic: gate and up once, out once.
template <class Ctx>
RENGA_DEVICE void SwiGlu(Ctx& ctx, const SwiGluArgs& args) {
  const int row = ctx.block_x();
  if (row >= *args.row_count) return;
  const int at = (ctx.block_y() * kRowThreads + ctx.thread()) * 4;
  const float* gates = args.gate_up + static_cast<int64_t>(row) * 2 * args.ffn;
  float gate[4];
  float up[4];
  LoadFour(ctx, gates, at, args.ffn, gate);
  LoadFour(ctx, gates + args.ffn, at, args.ffn, up);
  RENGA_UNROLL
  for (int i = 0; i < 4; ++i) {
    up[i] = Divide(gate[i], 1.0f + Exp2(-gate[i] * kLog2E)) * up[i];
  }
  StoreFour(args.out + row * args.out_stride, at, args.ffn, up);
}

}  // namespace renga::cuda
