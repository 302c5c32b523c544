// The ops on single rows, over Vec: norm, quantisation, SwiGLU, rotation, KV append. The
// definitions are in ops_portable.cc; included after a vec_*-inl.h.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

static void RmsNorm(const float* x, const float* weight, int64_t n, float eps,
                    float* out) {
  Vec sums = Zero();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Vec v = Load(x + i);
    sums = Fma(v, v, sums);
  }
  if (i < n) {
    const Vec v = LoadN(x + i, n - i);
    sums = First(n - i, Fma(v, v, sums), sums);
  }
  const float mean = FoldSum(sums) / static_cast<float>(n);
  const Vec r = Set(1.0f / __builtin_sqrtf(mean + eps));
  for (i = 0; i + 16 <= n; i += 16) {
    Store(out + i, Mul(Mul(Load(x + i), r), Load(weight + i)));
  }
  if (i < n) {
    StoreN(out + i, Mul(Mul(LoadN(x + i, n - i), r), LoadN(weight + i, n - i)), n - i);
  }
}

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

static void QuantiseRow(const float* x, int64_t n, float coarse, int64_t row,
                        const QuantRows& out) {
  const int64_t blocks = n / kBlockValues;
  const QuantRows tile = TileOf(out, n, row / kTileRows);
  const int64_t r = row % kTileRows;
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
    const bool fine_before = r > 0 && tile.fine[b] != 0;
    tile.fine[b] = fine_before || !block.coarse;
    int8_t* target = tile.codes + b * kTileBlockCodes + r * 4;
    for (int64_t j = 0; j < 16; ++j) __builtin_memcpy(target + j * 32, codes + j * 4, 4);
    tile.scales[b * kTileRows + r] = scale;
    tile.scaled_sums[b * kTileRows + r] = scale * static_cast<float>(sum);
    tile.code_sums[b * kTileRows + r] = sum;
  }
}

static inline Vec SwigluVec(Vec gate, Vec up) {
  const Vec e = Exp2(Mul(Sub(Set(-0.0f), gate), Set(kLog2E)));
  return Mul(Div(gate, Add(Set(1.0f), e)), up);
}

static void Swiglu(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(out + i, SwigluVec(Load(gate + i), Load(up + i)));
  if (i < n) {
    StoreN(out + i, SwigluVec(LoadN(gate + i, n - i), LoadN(up + i, n - i)), n - i);
  }
}

// Element-wise: the compiler's own vectorisation keeps the bits. The pair distance and
// the step are template arguments so that it can.
template <bool kHalves>
static inline void RotateHead(const RopeArgs& args, float* __restrict x) {
  const float* __restrict cosines = args.cos;
  const float* __restrict sines = args.sin;
  const int64_t half = args.rope_dims / 2;
  const float scale = args.scale;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = kHalves ? i : 2 * i;
    const int64_t second = kHalves ? i + half : 2 * i + 1;
    const float a = x[first];
    const float b = x[second];
    x[first] = __builtin_fmaf(a, cosines[i], -(b * sines[i])) * scale;
    x[second] = __builtin_fmaf(a, sines[i], b * cosines[i]) * scale;
  }
  for (int64_t i = args.rope_dims; i < args.head_dim; ++i) x[i] = x[i] * scale;
}

static void Rope(const RopeArgs& args) {
  for (int64_t head = 0; head < args.heads; ++head) {
    float* x = args.x + head * args.head_dim;
    if (args.halves) {
      RotateHead<true>(args, x);
    } else {
      RotateHead<false>(args, x);
    }
  }
}

static inline void ScatterK(const float* k, int64_t n, float* target) {
  for (int64_t i = 0; i < n; ++i) target[i * 16] = k[i];
}
static inline void ScatterK(const float* k, int64_t n, uint16_t* target) {
  for (int64_t i = 0; i < n; i += 16) {
    uint16_t halves[16];
    StoreN(halves, LoadN(k + i, n - i), 16);
    for (int64_t j = 0; j < 16 && i + j < n; ++j) target[(i + j) * 16] = halves[j];
  }
}

template <class Element>
static void KvAppend(const KvAppendArgs& args) {
  const int64_t hd = args.head_dim;
  Element* page = reinterpret_cast<Element*>(args.page);
  ScatterK(args.k, hd, page + args.slot / 16 * hd * 16 + args.slot % 16);
  Element* v = page + (kChunkPositions + args.slot) * hd;
  for (int64_t i = 0; i < hd; i += 16) StoreN(v + i, LoadN(args.v + i, hd - i), hd - i);
}

}  // namespace RENGA_ISA
}  // namespace renga
