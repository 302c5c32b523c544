// Sampling: the generator's published vectors, every draw against a plain sampler in
// double precision, the distribution, and the edges of every parameter.

#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tests/kernels/sampler.h"

namespace renga {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

int32_t GreedyId(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

// ---- The generator -----------------------------------------------------------------

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

TEST(RandomBits, DependOnSeedChoiceAndIndexAlone) {
  std::set<uint64_t> seen;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 31,
                              uint64_t{1} << 40, (uint64_t{1} << 63) - 1}) {
    for (const uint32_t choice : {0u, 1u}) {
      for (const uint32_t index : {0u, 1u, 500u}) {
        EXPECT_EQ(RandomBits(seed, choice, index), RandomBits(seed, choice, index));
        seen.insert(RandomBits(seed, choice, index));
      }
    }
  }
  EXPECT_EQ(seen.size(), 30u);
}

// ---- The reference -----------------------------------------------------------------

struct Weighted {
  int32_t id;
  double logit;
  double depth;  // (max - logit) / temperature, in natural units.
  double weight;
};
using Tokens = std::vector<Weighted>;

double MassOf(const Tokens& tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), 0.0,
                         [](double sum, const Weighted& t) { return sum + t.weight; });
}

// The shortest head of the sorted `tokens` with a share of their mass.
void CutToShare(Tokens& tokens, double share) {
  const double wanted = share * MassOf(tokens);
  double mass = 0.0;
  size_t kept = 0;
  while (kept < tokens.size() && (kept == 0 || mass < wanted)) {
    mass += tokens[kept++].weight;
  }
  tokens.resize(kept);
}

void SortByLogit(Tokens& tokens) {
  std::sort(tokens.begin(), tokens.end(), [](const Weighted& a, const Weighted& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  });
}

void CutToTypical(Tokens& tokens, double share, double shift) {
  const double total = MassOf(tokens);
  double entropy = shift;
  for (const Weighted& t : tokens) {
    if (t.weight > 0.0) entropy -= t.weight / total * std::log(t.weight / total);
  }
  const auto surprise = [&](const Weighted& t) {
    return std::abs(-std::log(t.weight / total) - entropy);
  };
  std::sort(tokens.begin(), tokens.end(), [&](const Weighted& a, const Weighted& b) {
    const double sa = surprise(a);
    const double sb = surprise(b);
    if (sa != sb) return sa < sb;
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  });
  CutToShare(tokens, share);
}

// How far borders are moved, to find those that are too close to call.
struct Slack {
  double share = 0.0;    // Wider.
  double entropy = 0.0;  // Higher.
};

// What is left of the row, in order of ids.
Tokens Reference(const std::vector<float>& logits, const SampleArgs& args,
                 const Slack& slack = {}) {
  const double max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  Tokens tokens;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double logit = static_cast<double>(logits[i]);
    const double depth = (max - logit) / static_cast<double>(args.temperature);
    if (std::isinf(logit)) continue;
    tokens.push_back({.id = static_cast<int32_t>(i),
                      .logit = logit,
                      .depth = depth,
                      .weight = std::exp(-depth)});
  }
  SortByLogit(tokens);
  if (args.top_k > 0 && static_cast<size_t>(args.top_k) < tokens.size()) {
    tokens.resize(static_cast<size_t>(args.top_k));
  }
  if (args.min_p >= 1.0f && args.typical_p >= 1.0f) return {tokens[0]};
  // What can't be drawn plays no part.
  std::erase_if(tokens, [](const Weighted& t) { return t.depth > 22.0; });
  if (args.typical_p < 1.0f) {
    CutToTypical(tokens, static_cast<double>(args.typical_p) + slack.share,
                 slack.entropy);
    SortByLogit(tokens);
  }
  if (args.top_p < 1.0f)
    CutToShare(tokens, static_cast<double>(args.top_p) + slack.share);
  const double least = tokens[0].weight * std::min(1.0, static_cast<double>(args.min_p) *
                                                            (1.0 - slack.share));
  std::erase_if(tokens, [&](const Weighted& t) { return t.weight < least; });
  std::sort(tokens.begin(), tokens.end(),
            [](const Weighted& a, const Weighted& b) { return a.id < b.id; });
  return tokens;
}

// Whether the draw of `args` is the token that the reference finds at the same place of
// the cumulative distribution. Where a border is too close to call in float, any side of
// it is right; such draws are counted.
class Judge {
 public:
  void Check(const std::vector<float>& logits, const SampleArgs& args, int32_t token) {
    ++draws_;
    const Tokens left = Reference(logits, args);
    const std::vector<int32_t> ids = IdsOf(left);
    bool close = false;
    bool known = std::binary_search(ids.begin(), ids.end(), token);
    for (const Slack& slack : {Slack{.share = 1e-5}, Slack{.share = -1e-5},
                               Slack{.entropy = 1e-5}, Slack{.entropy = -1e-5}}) {
      const std::vector<int32_t> others = IdsOf(Reference(logits, args, slack));
      close = close || others != ids;
      known = known || std::binary_search(others.begin(), others.end(), token);
    }
    ASSERT_TRUE(known) << "drew " << token << ", which is not left";
    close_ += close ? 1 : 0;
    if (!close) CheckPlace(left, args, token);
  }

  void ExpectFewClose() const { EXPECT_LT(close_ * 15, draws_) << close_; }

 private:
  static std::vector<int32_t> IdsOf(const Tokens& tokens) {
    std::vector<int32_t> ids;
    for (const Weighted& t : tokens) ids.push_back(t.id);
    return ids;
  }

  static void CheckPlace(const Tokens& left, const SampleArgs& args, int32_t token) {
    const double total = MassOf(left);
    const double place =
        static_cast<double>(RandomBits(args.seed, args.choice, args.token_index)) *
        0x1.0p-64;
    double before = 0.0;
    for (const Weighted& t : left) {
      const double after = before + t.weight / total;
      if (t.id == token) {
        EXPECT_GE(place, before - 1e-5);
        EXPECT_LE(place, after + 1e-5);
      }
      before = after;
    }
  }

  int draws_ = 0;
  int close_ = 0;
};

SampleArgs RandomArgs(std::mt19937& random, int64_t size) {
  const auto pick = [&](std::initializer_list<float> values) {
    return values.begin()[random() % values.size()];
  };
  SampleArgs args{.temperature = pick({0.05f, 0.7f, 1.0f, 2.0f, 50.0f}),
                  .seed = random(),
                  .choice = static_cast<uint32_t>(random() % 3),
                  .token_index = static_cast<uint32_t>(random() % 1000)};
  const uint32_t filters = random() % 16;  // Every combination comes.
  if ((filters & 1) != 0) {
    args.top_k = static_cast<int32_t>(random() % static_cast<uint32_t>(size + 2));
  }
  if ((filters & 2) != 0) args.typical_p = pick({0.03f, 0.2f, 0.5f, 0.9f, 0.99f});
  if ((filters & 4) != 0) args.top_p = pick({1e-9f, 0.1f, 0.5f, 0.9f, 0.999f});
  if ((filters & 8) != 0) args.min_p = pick({1e-6f, 0.01f, 0.1f, 0.7f, 1.0f});
  return args;
}

std::string Describe(const SampleArgs& args) {
  return "temperature " + std::to_string(args.temperature) + " top_k " +
         std::to_string(args.top_k) + " typical_p " + std::to_string(args.typical_p) +
         " top_p " + std::to_string(args.top_p) + " min_p " + std::to_string(args.min_p) +
         " seed " + std::to_string(args.seed);
}

// On every instruction set.
void CheckRow(const std::vector<float>& logits, const SampleArgs& args, Judge& judge) {
  SCOPED_TRACE(std::to_string(logits.size()) + " logits, " + Describe(args));
  const int32_t token = Sampler(logits, *MachineOps()[0]).Draw(args);
  for (const CpuOps* ops : MachineOps()) {
    ASSERT_EQ(Sampler(logits, *ops).Draw(args), token) << ops->name;
  }
  judge.Check(logits, args, token);
}

TEST(Sample, EveryDrawIsThatOfTheDefinition) {
  std::mt19937 random(11);
  Judge judge;
  for (int i = 0; i < 2500; ++i) {
    const int64_t size = std::array<int64_t, 5>{1, 2, 17, 150, 1000}[random() % 5];
    const std::vector<float> logits = RowOfKind(static_cast<int>(random() % kRowKinds),
                                                size, static_cast<uint32_t>(random()));
    CheckRow(logits, RandomArgs(random, size), judge);
    if (HasFatalFailure()) return;
  }
  judge.ExpectFewClose();
}

TEST(Sample, EveryDrawIsThatOfTheDefinitionOnALargeVocabulary) {
  std::mt19937 random(12);
  Judge judge;
  for (int i = 0; i < 2 * kRowKinds; ++i) {
    const std::vector<float> logits =
        RowOfKind(i % kRowKinds, 49152, static_cast<uint32_t>(random()));
    SampleArgs args = RandomArgs(random, i % 3 == 0 ? 49152 : 60);
    if (i < kRowKinds) args.typical_p = 1.0f;
    CheckRow(logits, args, judge);
    if (HasFatalFailure()) return;
  }
}

// ---- The distribution --------------------------------------------------------------

// Chi-square of the draws against the reference's probabilities: within 5 standard
// deviations of its mean.
void ExpectDistribution(const std::vector<float>& logits, const SampleArgs& args) {
  constexpr uint32_t kDraws = 20000;
  SCOPED_TRACE(Describe(args));
  std::map<int32_t, int> counts;
  for (const int32_t token : Sampler(logits).Draws(args, kDraws)) ++counts[token];
  const Tokens left = Reference(logits, args);
  const double total = MassOf(left);
  double chi = 0.0;
  int freedom = -1;
  double rest = 0.0;
  int rest_count = 0;
  for (const Weighted& t : left) {
    const double mean = t.weight / total * kDraws;
    const int count = counts[t.id];
    counts.erase(t.id);
    if (mean < 5.0) {
      rest += mean;
      rest_count += count;
      continue;
    }
    chi += (count - mean) * (count - mean) / mean;
    ++freedom;
  }
  EXPECT_TRUE(counts.empty()) << "drew " << counts.begin()->first;
  if (rest > 5.0) {
    chi += (rest_count - rest) * (rest_count - rest) / rest;
    ++freedom;
  }
  ASSERT_GT(freedom, 0);
  EXPECT_LT(chi, freedom + 5.0 * std::sqrt(2.0 * freedom));
}

TEST(Sample, FollowsTheDefinedDistribution) {
  const std::vector<float> logits = RandomFloats(60, 5, 2.0f);
  for (const SampleArgs& args :
       {SampleArgs{.seed = 1}, SampleArgs{.temperature = 0.5f, .seed = 2},
        SampleArgs{.temperature = 3.0f, .seed = 3}, SampleArgs{.top_k = 5, .seed = 4},
        SampleArgs{.typical_p = 0.6f, .seed = 5}, SampleArgs{.top_p = 0.8f, .seed = 6},
        SampleArgs{.min_p = 0.1f, .seed = 7},
        SampleArgs{.temperature = 1.5f,
        .top_k = 20,
        .typical_p = 0.95f,
        .top_p = 0.9f,
        .min_p = 0.05f,
        .seed = 8}}) {
    ExpectDistribution(logits, args);
  }
}

TEST(Sample, TypicalMayDropTheMostLikelyToken) {
  // One token of probability 0.4 and 60 of 0.01: the entropy is near the 60.
  std::vector<float> logits(61, std::log(0.01f));
  logits[30] = std::log(0.4f);
  for (const int32_t token :
       Sampler(logits).Draws({.typical_p = 0.299f, .seed = 3}, 500)) {
    EXPECT_LT(token, 30);  // Ties: the 30 smallest ids have the mass of 0.3.
  }
}

// ---- Edges -------------------------------------------------------------------------

TEST(Sample, GreedyTakesTheSmallestIdOfTheLargest) {
  for (const CpuOps* ops : MachineOps()) {
    for (const size_t vocab : {1u, 5u, 16u, 17u, 64u, 65u, 1000u}) {
      std::vector<float> logits(vocab, -1.0f);
      logits[vocab / 2] = logits[vocab - 1] = 3.0f;
      Sampler sampler(logits, *ops);
      EXPECT_EQ(sampler.Draw({.temperature = 0.0f}), static_cast<int32_t>(vocab / 2));
    }
  }
}

TEST(Sample, SettingsThatLeaveOneTokenGiveTheGreedyId) {
  Sampler sampler(RandomFloats(3000, 1, 3.0f));
  const int32_t greedy = GreedyId(sampler.logits());
  for (uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(sampler.Draw({.top_k = 1, .seed = i}), greedy);
    EXPECT_EQ(sampler.Draw({.top_p = 1e-9f, .seed = i}), greedy);
    EXPECT_EQ(sampler.Draw({.top_k = 50, .top_p = 1e-9f, .seed = i}), greedy);
    EXPECT_EQ(sampler.Draw({.min_p = 1.0f, .seed = i}), greedy);
    EXPECT_EQ(sampler.Draw({.temperature = 1e-4f, .seed = i}), greedy);
  }
}

TEST(Sample, SettingsThatKeepAllChangeNothing) {
  Sampler sampler(RandomFloats(777, 2));
  const std::vector<int32_t> plain = sampler.Draws({.seed = 4}, 200);
  for (const int32_t top_k :
       {0, -1, 777, 778, 9999999, std::numeric_limits<int32_t>::max()}) {
    EXPECT_EQ(sampler.Draws({.top_k = top_k, .seed = 4}, 200), plain) << top_k;
  }
  EXPECT_EQ(
      sampler.Draws({.typical_p = 1.0f, .top_p = 1.0f, .min_p = 0.0f, .seed = 4}, 200),
      plain);
  EXPECT_EQ(sampler.Draws({.min_p = 1e-30f, .seed = 4}, 200), plain);
}

TEST(Sample, SeedsGiveDifferentAnswersAndEachAlwaysItsOwn) {
  Sampler sampler(RandomFloats(1000, 9));
  std::set<std::vector<int32_t>> answers;
  for (const uint64_t seed :
       {uint64_t{0}, uint64_t{1}, uint64_t{1} << 31, (uint64_t{1} << 63) - 1}) {
    for (const uint32_t choice : {0u, 1u}) {
      const SampleArgs args{.seed = seed, .choice = choice};
      const std::vector<int32_t> answer = sampler.Draws(args, 32);
      EXPECT_EQ(sampler.Draws(args, 32), answer);
      answers.insert(answer);
    }
  }
  EXPECT_EQ(answers.size(), 8u);
}

TEST(Sample, NonFiniteLogitsAreRefusedAndMinusInfinityIsNot) {
  for (const size_t bad_at : {0u, 15u, 16u, 20u}) {
    for (const float bad : {kInf, std::numeric_limits<float>::quiet_NaN()}) {
      for (const float temperature : {0.0f, 1.0f}) {
        std::vector<float> logits(21, 0.5f);
        logits[bad_at] = bad;
        EXPECT_EQ(Sampler(logits).Draw({.temperature = temperature}), -1);
      }
    }
  }
  EXPECT_EQ(Sampler(std::vector<float>(40, -kInf)).Draw({}), -1);
  std::vector<float> logits(40, -kInf);
  logits[33] = -5.0f;
  EXPECT_EQ(Sampler(logits).Draw({}), 33);
  EXPECT_EQ(Sampler(logits).Draw({.top_k = 7, .top_p = 0.5f, .min_p = 0.1f}), 33);
  EXPECT_EQ(Sampler(logits).Draw({.top_k = 7, .typical_p = 0.5f}), 33);
}

TEST(Sample, TiesAtTheBorderKeepTheSmallerIds) {
  // Few and many, so that the border is found without and with a histogram.
  for (const int32_t vocab : {100, 300, 5000}) {
    Sampler sampler(std::vector<float>(static_cast<size_t>(vocab), 1.25f));
    const auto largest = [&](const SampleArgs& args) {
      const std::vector<int32_t> draws = sampler.Draws(args, 500);
      return *std::max_element(draws.begin(), draws.end());
    };
    EXPECT_EQ(largest({.top_k = 7, .seed = 1}), 6);
    EXPECT_LT(largest({.top_k = vocab - 1, .seed = 1}), vocab - 1);
    EXPECT_LT(largest({.typical_p = 0.1f, .seed = 1}), vocab / 10 + 1);
    EXPECT_LT(largest({.top_p = 0.1f, .seed = 1}), vocab / 10 + 1);
  }
}

TEST(Sample, AScratchIsAsLargeAsItSays) {
  for (const int64_t vocab : {1, 64, 65, 1023, 1025, 49152}) {
    std::vector<std::byte> memory(SampleScratchBytes(vocab) + 64);
    const auto start = reinterpret_cast<uintptr_t>(memory.data());
    const SampleScratch scratch =
        MakeSampleScratch(memory.data() + (64 - start % 64) % 64, vocab);
    EXPECT_LE(reinterpret_cast<std::byte*>(scratch.border + vocab),
              memory.data() + memory.size());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.weights) % 64, 0u);
    EXPECT_EQ(SampleScratchBytes(vocab) % 64, 0u);
  }
}

}  // namespace
}  // namespace renga
