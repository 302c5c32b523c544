// Sampling: the generator's published vectors, the distribution, and the edges of every
// parameter.

#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "tests/kernels/kernel_cases.h"

namespace renga {
namespace {

class Sampler {
 public:
  explicit Sampler(std::vector<float> logits)
      : logits_(std::move(logits)),
        weights_(logits_.size()),
        ids_(logits_.size()),
        border_(logits_.size()),
        mass_(SampleScratch::kBins),
        count_(SampleScratch::kBins) {}

  int32_t Draw(SampleArgs args) {
    args.logits = logits_.data();
    args.vocab = static_cast<int64_t>(logits_.size());
    return SampleToken(args, {weights_.data(), ids_.data(), border_.data(), mass_.data(),
                              count_.data()});
  }
  std::map<int32_t, int> Histogram(SampleArgs args, int draws) {
    std::map<int32_t, int> counts;
    for (int i = 0; i < draws; ++i) {
      args.token_index = static_cast<uint32_t>(i);
      ++counts[Draw(args)];
    }
    return counts;
  }
  const std::vector<float>& logits() const { return logits_; }

 private:
  std::vector<float> logits_;
  std::vector<float> weights_;
  std::vector<int32_t> ids_, border_;
  std::vector<double> mass_;
  std::vector<int64_t> count_;
};

int32_t GreedyId(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

// Random123's known answers for philox4x32-10.
TEST(Philox, GivesThePublishedVectors) {
  const PhiloxBlock zero = Philox4x32(0, {{0, 0, 0, 0}});
  EXPECT_EQ(zero.word[0], 0x6627e8d5u);
  EXPECT_EQ(zero.word[1], 0xe169c58du);
  EXPECT_EQ(zero.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
  const PhiloxBlock ones = Philox4x32(~uint64_t{0}, {{~0u, ~0u, ~0u, ~0u}});
  EXPECT_EQ(ones.word[0], 0x408f276du);
  EXPECT_EQ(ones.word[1], 0x41c83b0eu);
  EXPECT_EQ(ones.word[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.word[3], 0x6d5451fdu);
  const PhiloxBlock pi = Philox4x32(uint64_t{0x299f31d0} << 32 | 0xa4093822u,
                                    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}});
  EXPECT_EQ(pi.word[0], 0xd16cfe09u);
  EXPECT_EQ(pi.word[1], 0x94fdccebu);
  EXPECT_EQ(pi.word[2], 0x5001e420u);
  EXPECT_EQ(pi.word[3], 0x24126ea1u);
}

TEST(Uniform, DependsOnSeedChoiceAndIndexAlone) {
  std::set<double> seen;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
    for (uint32_t choice : {0u, 1u}) {
      for (uint32_t index : {0u, 1u, 500u}) {
        const double u = UniformOf(seed, choice, index);
        EXPECT_EQ(u, UniformOf(seed, choice, index));
        EXPECT_GE(u, 0.0);
        EXPECT_LT(u, 1.0);
        seen.insert(u);
      }
    }
  }
  EXPECT_EQ(seen.size(), 18u);
}

TEST(Sample, GreedyTakesTheSmallestIdOfTheLargest) {
  for (const size_t vocab : {1u, 5u, 16u, 17u, 1000u}) {
    std::vector<float> logits(vocab, -1.0f);
    logits[vocab / 2] = logits[vocab - 1] = 3.0f;
    Sampler sampler(logits);
    EXPECT_EQ(sampler.Draw({.temperature = 0.0f}), static_cast<int32_t>(vocab / 2));
  }
}

TEST(Sample, SettingsThatLeaveOneTokenGiveTheGreedyId) {
  Sampler sampler(RandomFloats(3000, 1, 3.0f));
  const int32_t greedy = GreedyId(sampler.logits());
  for (uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(sampler.Draw({.top_k = 1, .seed = i}), greedy);
    EXPECT_EQ(sampler.Draw({.top_p = 1e-9f, .seed = i}), greedy);
    EXPECT_EQ(sampler.Draw({.min_p = 1.0f, .seed = i}), greedy);
    EXPECT_EQ(sampler.Draw({.temperature = 1e-4f, .seed = i}), greedy);
  }
}

TEST(Sample, SettingsThatKeepAllChangeNothing) {
  Sampler sampler(RandomFloats(777, 2));
  for (uint32_t i = 0; i < 200; ++i) {
    const int32_t plain = sampler.Draw({.seed = i});
    EXPECT_EQ(sampler.Draw({.top_k = 777, .seed = i}), plain);
    EXPECT_EQ(sampler.Draw({.top_k = 100000, .seed = i}), plain);
    EXPECT_EQ(sampler.Draw({.top_k = -1, .seed = i}), plain);
    EXPECT_EQ(sampler.Draw({.top_p = 1.0f, .min_p = 0.0f, .seed = i}), plain);
  }
}

TEST(Sample, NonFiniteLogitsAreRefusedAndMinusInfinityIsNot) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const size_t bad_at : {0u, 15u, 16u, 20u}) {
    for (const float bad : {infinity, std::numeric_limits<float>::quiet_NaN()}) {
      for (const float temperature : {0.0f, 1.0f}) {
        std::vector<float> logits(21, 0.5f);
        logits[bad_at] = bad;
        EXPECT_EQ(Sampler(logits).Draw({.temperature = temperature}), -1);
      }
    }
  }
  EXPECT_EQ(Sampler(std::vector<float>(40, -infinity)).Draw({}), -1);
  std::vector<float> logits(40, -infinity);
  logits[33] = -5.0f;
  EXPECT_EQ(Sampler(logits).Draw({}), 33);
  EXPECT_EQ(Sampler(logits).Draw({.top_k = 7, .top_p = 0.5f, .min_p = 0.1f}), 33);
}

// Observed counts stay within 6 standard deviations of p * n for every token.
void ExpectDistribution(const std::map<int32_t, int>& counts,
                        const std::map<int32_t, double>& p, int draws) {
  for (const auto& [id, count] : counts) EXPECT_TRUE(p.contains(id)) << id;
  for (const auto& [id, probability] : p) {
    const double mean = probability * draws;
    const double deviation = std::sqrt(mean * (1.0 - probability)) + 1.0;
    const auto found = counts.find(id);
    EXPECT_NEAR(found == counts.end() ? 0 : found->second, mean, 6.0 * deviation) << id;
  }
}

// The definition, with a full sort and in double precision.
std::map<int32_t, double> Reference(const std::vector<float>& logits,
                                    const SampleArgs& args) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](int32_t id) {
    return static_cast<double>(logits[static_cast<size_t>(id)]);
  };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  if (args.top_k > 0 && static_cast<size_t>(args.top_k) < ids.size()) {
    ids.resize(static_cast<size_t>(args.top_k));
  }
  const double temperature = static_cast<double>(args.temperature);
  std::map<int32_t, double> weights;
  double total = 0.0;
  for (const int32_t id : ids) {
    weights[id] = std::exp((logit(id) - logit(ids[0])) / temperature);
    total += weights[id];
  }
  std::map<int32_t, double> kept;
  double mass = 0.0;
  for (const int32_t id : ids) {
    if (!kept.empty() && args.top_p < 1.0f &&
        mass >= static_cast<double>(args.top_p) * total) {
      break;
    }
    mass += weights[id];
    if (weights[id] >= static_cast<double>(args.min_p)) kept[id] = weights[id];
  }
  double sum = 0.0;
  for (const auto& [id, weight] : kept) sum += weight;
  for (auto& [id, weight] : kept) weight /= sum;
  return kept;
}

TEST(Sample, FollowsTheDefinedDistribution) {
  const std::vector<float> logits = RandomFloats(60, 5, 2.0f);
  Sampler sampler(logits);
  constexpr int kDraws = 20000;
  for (const SampleArgs& args :
       {SampleArgs{.seed = 1}, SampleArgs{.temperature = 0.5f, .seed = 2},
        SampleArgs{.temperature = 3.0f, .seed = 3}, SampleArgs{.top_k = 5, .seed = 4},
        SampleArgs{.top_p = 0.8f, .seed = 5}, SampleArgs{.min_p = 0.1f, .seed = 6},
        SampleArgs{.temperature = 1.5f,
        .top_k = 20,
        .top_p = 0.9f,
        .min_p = 0.05f,
        .seed = 7}}) {
    SCOPED_TRACE("seed " + std::to_string(args.seed));
    ExpectDistribution(sampler.Histogram(args, kDraws), Reference(logits, args), kDraws);
  }
}

TEST(Sample, TiesAtTheBorderKeepTheSmallerIds) {
  Sampler sampler(std::vector<float>(300, 1.25f));
  for (const auto& [id, count] : sampler.Histogram({.top_k = 7, .seed = 1}, 2000)) {
    EXPECT_LT(id, 7);
  }
  for (const auto& [id, count] : sampler.Histogram({.top_p = 0.1f, .seed = 1}, 2000)) {
    EXPECT_LT(id, 31);
  }
}

TEST(Sample, KeepsExactlyTheDefinedSetOnALargeVocabulary) {
  const std::vector<float> logits = RandomFloats(49152, 6, 4.0f);
  Sampler sampler(logits);
  for (const int32_t top_k : {2, 50, 1000}) {
    const SampleArgs args{.temperature = 50.0f, .top_k = top_k, .seed = 9};
    const std::map<int32_t, double> kept = Reference(logits, args);
    for (const auto& [id, count] : sampler.Histogram(args, 300)) {
      EXPECT_TRUE(kept.contains(id)) << top_k << " " << id;
    }
  }
}

}  // namespace
}  // namespace renga
