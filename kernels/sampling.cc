// See sampling.h. Compiled for baseline x86-64 without contraction, so that every machine
// draws the same token.

#include "kernels/sampling.h"

#include <algorithm>

#include "kernels/block_format.h"

namespace renga {

namespace {

constexpr float kInfinity = __builtin_inff();
constexpr float kGreedyTemperature = 1e-6f;
constexpr int64_t kSumBlock = 256;  // Weights of one partial sum.

// exp2 of x in [-inf, 0]; multiplications and additions only (no fma instruction is
// assumed here). 0 below -126.5. The clamp works on the bits: a comparison of floats
// keeps GCC from vectorising the loop over the vocabulary (3 times slower).
float Exp2NonPositive(float x) {
  const int32_t magnitude = static_cast<int32_t>(FloatBits(x) & 0x7FFFFFFFu);
  const int32_t limit = 0x42FE0000;  // 127.0f
  const int32_t limited = magnitude < limit ? magnitude : limit;
  const float clamped = BitsFloat(static_cast<uint32_t>(limited) | 0x80000000u);
  const float shifted = clamped + 12582912.0f;
  const float f = clamped - (shifted - 12582912.0f);
  float p = 0.000153458122f;
  p = p * f + 0.00133999312f;
  p = p * f + 0.00961848896f;
  p = p * f + 0.0555032878f;
  p = p * f + 0.240226469f;
  p = p * f + 0.693147206f;
  p = p * f + 1.0f;
  return p * BitsFloat((FloatBits(shifted) + 127u) << 23);
}

// 256 weights in 8 partial sums, folded 4, 2, 1.
double BlockSum(const float* weights, int64_t n) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) {
      sums[lane] += static_cast<double>(weights[i + lane]);
    }
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) {
    sums[lane] += static_cast<double>(weights[i]);
  }
  for (int half = 4; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

// Index of the draw among `n` weights, some of them positive.
int64_t Draw(const float* weights, int64_t n, double u) {
  double total = 0.0;
  for (int64_t first = 0; first < n; first += kSumBlock) {
    total += BlockSum(weights + first, std::min(kSumBlock, n - first));
  }
  const double target = u * total;
  double before = 0.0;
  int64_t last_positive = 0;
  for (int64_t first = 0; first < n; first += kSumBlock) {
    const int64_t count = std::min(kSumBlock, n - first);
    const double sum = BlockSum(weights + first, count);
    if (sum <= 0.0) continue;
    double cumulative = before;
    for (int64_t i = first; i < first + count; ++i) {
      if (weights[i] <= 0.0f) continue;
      last_positive = i;
      if (before + sum <= target) continue;
      cumulative += static_cast<double>(weights[i]);
      if (cumulative > target) return i;
    }
    before += sum;
  }
  return last_positive;  // Rounding left u * total at the very end.
}

// The tokens still in play: ids in rising order, with their weights.
class Candidates {
 public:
  Candidates(const SampleArgs& args, const SampleScratch& scratch, float max, float scale)
      : args_(args), scratch_(scratch), max_(max), scale_(scale) {
    // While nothing has been dropped, ids are the indices and are not written down.
    count_ = args.vocab;
    const float* logits = args.logits;
    float* weights = scratch.weights;
    for (int64_t i = 0; i < count_; ++i) {
      weights[i] = Exp2NonPositive((logits[i] - max) * scale);
    }
  }

  void KeepTopK(int64_t k) {
    Count();
    int64_t kept = 0;
    int bin = 0;
    while (kept + scratch_.bin_count[bin] < k) kept += scratch_.bin_count[bin++];
    const int64_t sorted = SortBin(bin);
    KeepThrough(bin, std::min(sorted, k - kept));
  }

  void KeepTopP(double share) {
    Count();
    double total = 0.0;
    for (int bin = 0; bin < SampleScratch::kBins; ++bin) {
      total += scratch_.bin_mass[bin];
    }
    const double wanted = share * total;
    double mass = 0.0;
    int bin = 0;
    while (bin + 1 < SampleScratch::kBins && mass + scratch_.bin_mass[bin] < wanted) {
      mass += scratch_.bin_mass[bin++];
    }
    const int64_t sorted = SortBin(bin);
    int64_t inside = 0;
    while (inside < sorted && (mass < wanted || (bin == 0 && inside == 0))) {
      mass += static_cast<double>(WeightOf(scratch_.border[inside++]));
    }
    KeepThrough(bin, inside);
  }

  void DropBelow(float weight) {
    Compact([&](int64_t i) { return scratch_.weights[i] >= weight; });
  }

  int32_t DrawId(double u) const { return IdAt(Draw(scratch_.weights, count_, u)); }

 private:
  int32_t IdAt(int64_t i) const {
    return compact_ ? scratch_.ids[i] : static_cast<int32_t>(i);
  }
  float LogitAt(int64_t i) const { return args_.logits[IdAt(i)]; }
  float WeightOf(int32_t id) const {
    return Exp2NonPositive((args_.logits[id] - max_) * scale_);
  }

  // Bin 0 holds the largest logits; 32 bins per factor of 2; monotone in the logit.
  int BinOf(float logit) const {
    const float depth = (max_ - logit) * scale_ * 32.0f;
    return depth < static_cast<float>(SampleScratch::kBins - 1)
               ? static_cast<int>(depth)
               : SampleScratch::kBins - 1;
  }

  void Count() {
    std::fill_n(scratch_.bin_mass, SampleScratch::kBins, 0.0);
    std::fill_n(scratch_.bin_count, SampleScratch::kBins, int64_t{0});
    for (int64_t i = 0; i < count_; ++i) {
      const int bin = BinOf(LogitAt(i));
      scratch_.bin_mass[bin] += static_cast<double>(scratch_.weights[i]);
      ++scratch_.bin_count[bin];
    }
  }

  bool Before(int32_t a, int32_t b) const {
    const float la = args_.logits[a];
    const float lb = args_.logits[b];
    return la > lb || (la == lb && a < b);
  }

  // Puts the ids of one bin into `border`, best first; returns how many.
  int64_t SortBin(int bin) {
    int64_t n = 0;
    for (int64_t i = 0; i < count_; ++i) {
      if (BinOf(LogitAt(i)) == bin) scratch_.border[n++] = IdAt(i);
    }
    std::sort(scratch_.border, scratch_.border + n,
              [this](int32_t a, int32_t b) { return Before(a, b); });
    return n;
  }

  // Keeps the bins before `bin` and the first `inside` of the sorted ids of `bin`.
  void KeepThrough(int bin, int64_t inside) {
    const int32_t last = inside > 0 ? scratch_.border[inside - 1] : -1;
    Compact([&](int64_t i) {
      const int32_t id = IdAt(i);
      const int own = BinOf(args_.logits[id]);
      return own < bin || (own == bin && last >= 0 && !Before(last, id));
    });
  }

  template <class Keep>
  void Compact(const Keep& keep) {
    int64_t n = 0;
    for (int64_t i = 0; i < count_; ++i) {
      if (!keep(i)) continue;
      scratch_.ids[n] = IdAt(i);
      scratch_.weights[n++] = scratch_.weights[i];
    }
    count_ = n;
    compact_ = true;
  }

  const SampleArgs& args_;
  const SampleScratch& scratch_;
  const float max_;
  const float scale_;  // log2(e) / temperature
  int64_t count_ = 0;
  bool compact_ = false;
};

}  // namespace

PhiloxBlock Philox4x32(uint64_t key, PhiloxBlock counter) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter.word[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

double UniformOf(uint64_t seed, uint32_t choice, uint32_t token_index) {
  const PhiloxBlock block = Philox4x32(seed, {{choice, token_index, 0, 0}});
  const uint64_t bits = (uint64_t{block.word[0]} << 32) | block.word[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

int32_t Argmax(const float* logits, int64_t vocab) {
  // inf - inf and NaN - NaN are not 0, so one sum finds both; -inf is legal.
  float lanes[16];
  bool bad = false;
  for (float& lane : lanes) lane = -kInfinity;
  int64_t i = 0;
  for (; i + 16 <= vocab; i += 16) {
    for (int64_t lane = 0; lane < 16; ++lane) {
      const float value = logits[i + lane];
      bad |= !(value < kInfinity);
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  }
  float max = -kInfinity;
  for (const float lane : lanes) max = lane > max ? lane : max;
  for (; i < vocab; ++i) {
    bad |= !(logits[i] < kInfinity);
    max = logits[i] > max ? logits[i] : max;
  }
  if (bad || !(max > -kInfinity)) return -1;
  for (int64_t id = 0; id < vocab; ++id) {
    if (logits[id] == max) return static_cast<int32_t>(id);
  }
  return -1;
}

int32_t SampleToken(const SampleArgs& args, const SampleScratch& scratch) {
  const int32_t best = Argmax(args.logits, args.vocab);
  if (best < 0 || !(args.temperature >= kGreedyTemperature) || args.top_k == 1 ||
      args.min_p >= 1.0f) {
    return best;
  }
  const float scale = 1.44269504f / args.temperature;
  Candidates candidates(args, scratch, args.logits[best], scale);
  if (args.top_k > 1 && args.top_k < args.vocab) candidates.KeepTopK(args.top_k);
  if (args.top_p < 1.0f) candidates.KeepTopP(static_cast<double>(args.top_p));
  if (args.min_p > 0.0f) candidates.DropBelow(args.min_p);
  return candidates.DrawId(UniformOf(args.seed, args.choice, args.token_index));
}

}  // namespace renga
