// Body of the chunk operator: softmax attention inside a chunk, averaged over its
// queries. See rows.h.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/rows_shape.h"
#include "kernels/cuda/words.h"

namespace renga::cuda {

// Starts the copy of `size` rows into a tile; the rows behind them become zeros.
template <class Ctx>
RENGA_DEVICE void CopyTile(Ctx& ctx, const uint16_t* from, int size, int hd,
                           uint16_t* tile) {
  const int row_vecs = hd / 8;
  RENGA_NO_UNROLL
  for (int i = ctx.thread(); i < kChunkTokens * row_vecs; i += kPoolThreads) {
    const int row = i / row_vecs;
    const int c = i % row_vecs * 8;
    ctx.CopyAsync16(tile + row * PoolPitch(hd) + c,
                    from + (row < size ? row : 0) * hd + c, row < size);
  }
}

// c[n][.] = the C fragment of (this warp's 16 queries, keys 8 n .. 8 n + 7).
template <class Ctx>
RENGA_DEVICE void PoolScores(Ctx& ctx, const uint16_t* q, const uint16_t* k, int hd,
                             float (&c)[8][4]) {
  const int lane = ctx.lane();
  const uint16_t* q_row =
      q + (ctx.warp() * 16 + lane % 16) * PoolPitch(hd) + lane / 16 * 8;
  const uint16_t* k_row =
      k + (lane / 16 * 8 + lane % 8) * PoolPitch(hd) + lane / 8 % 2 * 8;
  RENGA_UNROLL
  for (int n = 0; n < 8; ++n) {
    RENGA_UNROLL
    for (int i = 0; i < 4; ++i) c[n][i] = 0.0f;
  }
  RENGA_NO_UNROLL
  for (int step = 0; step < hd; step += 16) {
    uint32_t a[4];
    ctx.LoadMatrix4(a, q_row + step);
    RENGA_UNROLL
    for (int pair = 0; pair < 4; ++pair) {
      uint32_t b[4];
      ctx.LoadMatrix4(b, k_row + pair * 16 * PoolPitch(hd) + step);
      const uint32_t first[2] = {b[0], b[1]};
      const uint32_t second[2] = {b[2], b[3]};
      ctx.MmaF16(c[2 * pair], a, first);
      ctx.MmaF16(c[2 * pair + 1], a, second);
    }
  }
}

// Turns a query's 16 scores of this lane (c[n][2 half], c[n][2 half + 1]; the other three
// lanes of its quad have the rest) into probabilities. factor: log2(e) * scale.
template <class Ctx>
RENGA_DEVICE void PoolSoftmax(Ctx& ctx, int half, int size, float factor,
                              float (&c)[8][4]) {
  const int first_key = ctx.lane() % 4 * 2;
  float max = kMinusInfinity;
  RENGA_UNROLL
  for (int i = 0; i < 16; ++i) {
    float& score = c[i / 2][2 * half + i % 2];
    score = first_key + i / 2 * 8 + i % 2 < size ? score * factor : kMinusInfinity;
    max = score > max ? score : max;
  }
  RENGA_UNROLL
  for (int mask = 2; mask > 0; mask /= 2) {
    const float other = ctx.ShuffleXor(max, mask);
    max = other > max ? other : max;
  }
  float sum = 0.0f;
  RENGA_UNROLL
  for (int i = 0; i < 16; ++i) {
    float& p = c[i / 2][2 * half + i % 2];
    p = Exp2(p - max);
    sum += p;
  }
  RENGA_UNROLL
  for (int mask = 2; mask > 0; mask /= 2) sum += ctx.ShuffleXor(sum, mask);
  // Queries behind the end of the chunk count for nothing.
  const int query = ctx.warp() * 16 + ctx.lane() / 4 + 8 * half;
  const float inverse = query < size ? Divide(1.0f, sum) : 0.0f;
  RENGA_UNROLL
  for (int i = 0; i < 16; ++i) c[i / 2][2 * half + i % 2] *= inverse;
}

// out[c] = sum over keys j of w_j v_j, w_j = mean over queries i of softmax_j(q_i . k_j *
// scale): the mean of the outputs, as each is a sum over the same v.
// Shapes: q, k, v [batch_heads][n][hd], out [batch_heads][chunks][hd]; hd a multiple of
// 16, at most 128; the last chunk may be shorter.
// Launch: block per (head, chunk), 4 warps of 16 queries. Shared: PoolSharedBytes. All
// three tiles are on their way before the first product; v is waited for last.
// Traffic: q, k, v once, out once.
template <class Ctx>
RENGA_DEVICE void ChunkPool(Ctx& ctx, const ChunkPoolArgs& args) {
  const int hd = args.head_dim;
  const int chunks = (args.n + kChunkTokens - 1) / kChunkTokens;
  const int64_t head = ctx.block_x() / chunks;
  const int first = ctx.block_x() % chunks * kChunkTokens;
  const int size = args.n - first < kChunkTokens ? args.n - first : kChunkTokens;
  const int64_t offset = (head * args.n + first) * hd;
  uint16_t* q = ctx.template Shared<uint16_t>(0);
  uint16_t* k = ctx.template Shared<uint16_t>(PoolTileBytes(hd));
  uint16_t* v = ctx.template Shared<uint16_t>(2 * PoolTileBytes(hd));
  float* weights = ctx.template Shared<float>(3 * PoolTileBytes(hd));  // [4][64]
  CopyTile(ctx, args.q + offset, size, hd, q);
  CopyTile(ctx, args.k + offset, size, hd, k);
  ctx.CopyCommit();
  CopyTile(ctx, args.v + offset, size, hd, v);
  ctx.CopyCommit();
  ctx.template CopyWait<1>();
  ctx.Barrier();

  float c[8][4];
  PoolScores(ctx, q, k, hd, c);
  PoolSoftmax(ctx, 0, size, kLog2E * args.scale, c);
  PoolSoftmax(ctx, 1, size, kLog2E * args.scale, c);
  RENGA_UNROLL
  for (int i = 0; i < 16; ++i) {  // Sums over the warp's queries.
    float sum = c[i / 2][i % 2] + c[i / 2][2 + i % 2];
    RENGA_UNROLL
    for (int mask = 4; mask < kWarp; mask *= 2) sum += ctx.ShuffleXor(sum, mask);
    const int key = ctx.lane() % 4 * 2 + i / 2 * 8 + i % 2;
    if (ctx.lane() < 4) weights[ctx.warp() * kChunkTokens + key] = sum;
  }
  ctx.template CopyWait<0>();
  ctx.Barrier();
  if (ctx.thread() < kChunkTokens) {
    float* weight = weights + ctx.thread();
    const float sum = (weight[0] + weight[kChunkTokens]) +
                      (weight[2 * kChunkTokens] + weight[3 * kChunkTokens]);
    *weight = Divide(sum, static_cast<float>(size));
  }
  ctx.Barrier();
  if (ctx.thread() >= hd) return;
  float sum = 0.0f;
  for (int j = 0; j < kChunkTokens; ++j) {
    sum = Fma(weights[j], HalfToFloat(v[j * PoolPitch(hd) + ctx.thread()]), sum);
  }
  args.out[static_cast<int64_t>(ctx.block_x()) * hd + ctx.thread()] = sum;
}

}  // namespace renga::cuda
