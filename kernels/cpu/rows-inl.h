// The ops on single rows, over Vec: norm, SwiGLU, rotation, KV append. The definitions
// are in ops_portable.cc; included after a vec_*-inl.h.

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
