// See logprobs.h. Compiled for baseline x86-64 without contraction.

#include "kernels/logprobs.h"

#include <algorithm>
#include <numeric>

namespace renga {

namespace {

constexpr float kInfinity = __builtin_inff();
constexpr double kLn2 = 0.6931471805599453;
constexpr double kSqrtHalf = 0.7071067811865476;

// Puts the ids of the `top` best logits first in scratch.border; returns how many.
// REQUIRES: scratch.maxima are those of the row.
int32_t FindBest(const CpuOps& ops, const LogprobArgs& args,
                 const SampleScratch& scratch) {
  if (args.top <= 0) return 0;
  const int64_t count =
      ops.at_least({.x = args.logits,
                    .n = args.vocab,
                    .maxima = scratch.maxima,
                    .threshold = KthBlockMax(args.vocab, args.top, scratch),
                    .ids = scratch.ids,
                    .values = scratch.logits});
  const int64_t top = std::min<int64_t>(args.top, count);
  std::iota(scratch.border, scratch.border + count, 0);
  std::partial_sort(scratch.border, scratch.border + top, scratch.border + count,
                    [&](int32_t a, int32_t b) {  // Places and ids rise together.
                      const float la = scratch.logits[a];
                      const float lb = scratch.logits[b];
                      return la > lb || (la == lb && a < b);
                    });
  return static_cast<int32_t>(top);
}

}  // namespace

double NaturalLog(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, 8);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1022;
  bits = (bits & 0x000FFFFFFFFFFFFFull) | 0x3FE0000000000000ull;
  double m;  // [1/2, 1)
  __builtin_memcpy(&m, &bits, 8);
  if (m < kSqrtHalf) {
    m *= 2.0;
    --exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  double series = 0.0;
  for (int n = 19; n >= 1; n -= 2) series = series * square + 1.0 / n;
  return static_cast<double>(exponent) * kLn2 + 2.0 * s * series;
}

LogprobResult TokenLogprobs(const CpuOps& ops, const LogprobArgs& args,
                            const SampleScratch& scratch) {
  const float max = ScanLogits(ops, args.logits, args.vocab, scratch);
  if (!(max > -kInfinity)) return {};
  const double log_sum = NaturalLog(ops.exp_sum(args.logits, args.vocab, max));
  const auto logprob = [&](float logit) {
    return static_cast<float>((static_cast<double>(logit) - static_cast<double>(max)) -
                              log_sum);
  };
  const int32_t top = FindBest(ops, args, scratch);
  for (int32_t i = 0; i < top; ++i) {
    const int32_t place = scratch.border[i];
    args.out[i] = {.token = scratch.ids[place],
                   .logprob = logprob(scratch.logits[place])};
  }
  return {.finite = true, .logprob = logprob(args.logits[args.token]), .top = top};
}

}  // namespace renga
