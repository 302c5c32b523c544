// The passes of sampling over a row of logits, over Vec. The definitions are in
// ops_portable.cc; included after a vec_*-inl.h.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

// Lanes from n on are -inf.
static inline Vec LoadLogits(const float* x, int64_t n) {
  return n >= 16 ? Load(x) : First(n, LoadN(x, n), Set(-__builtin_inff()));
}

static float BlockMax(const float* x, int64_t n, float* maxima) {
  const Vec infinity = Set(__builtin_inff());
  uint32_t bad = 0;
  Vec largest = Set(-__builtin_inff());
  for (int64_t first = 0; first < n; first += kMaxBlock) {
    Vec max = Set(-__builtin_inff());
    for (int64_t i = first; i < first + kMaxBlock && i < n; i += 16) {
      const Vec v = LoadLogits(x + i, n - i);
      bad |= NotBelow(v, infinity);
      max = Max(v, max);
    }
    largest = Max(max, largest);
    maxima[first / kMaxBlock] = FoldMax(max) + 0.0f;  // Never -0.
  }
  return bad != 0 ? __builtin_nanf("") : FoldMax(largest) + 0.0f;
}

static int64_t AtLeastRow(const AtLeastArgs& args) {
  const Vec threshold = Set(args.threshold);
  int64_t count = 0;
  for (int64_t first = 0; first < args.n; first += kMaxBlock) {
    if (!(args.maxima[first / kMaxBlock] >= args.threshold)) continue;
    for (int64_t i = first; i < first + kMaxBlock && i < args.n; i += 16) {
      const int64_t lanes = args.n - i;
      const Vec v = LoadLogits(args.x + i, lanes);
      uint32_t chosen = AtLeast(v, threshold);
      if (lanes < 16) chosen &= (1u << lanes) - 1;
      if (chosen == 0) continue;
      count += StoreChosen(chosen, v, static_cast<int32_t>(i), args.values + count,
                           args.ids + count);
    }
  }
  return count;
}

// exp2((x - max) * scale), without fma.
static inline Vec PlainExp2(Vec x, Vec max, Vec scale) {
  x = Max(Mul(Sub(x, max), scale), Set(kExp2Lowest));
  const Vec shifted = Add(x, Set(kRoundMagic));
  const Vec f = Sub(x, Sub(shifted, Set(kRoundMagic)));
  Vec p = Set(kExp2C6);
  p = Add(Mul(p, f), Set(kExp2C5));
  p = Add(Mul(p, f), Set(kExp2C4));
  p = Add(Mul(p, f), Set(kExp2C3));
  p = Add(Mul(p, f), Set(kExp2C2));
  p = Add(Mul(p, f), Set(kExp2C1));
  p = Add(Mul(p, f), Set(kExp2C0));
  return Mul(p, PowerOfTwo(shifted));
}

static uint64_t SampleWeights(const float* x, int64_t n, float max, float scale,
                              uint32_t* weights) {
  const Vec one = Set(kSampleWeightOne);
  IntegerSum sum;
  for (int64_t i = 0; i < n; i += 16) {
    const Vec e = PlainExp2(LoadLogits(x + i, n - i), Set(max), Set(scale));
    const Vec weight = Add(Mul(e, one), Set(0.5f));
    sum.Add(weight);
    StoreIntegers(weights + i, weight, n - i);
  }
  return sum.Total();
}

static double ExpSum(const float* x, int64_t n, float max) {
  DoubleSum sum;
  for (int64_t i = 0; i < n; i += 16) {
    sum.Add(PlainExp2(LoadLogits(x + i, n - i), Set(max), Set(kLog2E)));
  }
  double lanes[16];
  sum.Store(lanes);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

}  // namespace RENGA_ISA
}  // namespace renga
