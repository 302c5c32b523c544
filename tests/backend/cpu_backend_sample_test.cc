// CpuBackend::Sample: what a request's sampling fields do to the tokens drawn from a row
// that the tiny model computed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "tests/backend/tiny_model.h"

namespace renga {
namespace {

class CpuBackendSample : public ::testing::Test {
 protected:
  CpuBackendSample()
      : runner_(MakeModel({TensorType::kF32}, TinyShape()), {.threads = 2},
                KvDtype::kF16) {
    TinySequence a = MakeSequence(9, 1, runner_.free_pages);
    TinySequence b = MakeSequence(5, 2, runner_.free_pages);
    logits_ = runner_.Step({&a, &b}, {9, 5});
    const auto best = std::max_element(logits_[0].begin(), logits_[0].end());
    greedy_ = static_cast<TokenId>(best - logits_[0].begin());
  }

  std::vector<SampleResult> Sample(const std::vector<SampleSpec>& specs) {
    std::vector<SampleResult> results(specs.size());
    EXPECT_EQ(runner_.backend().Sample(specs, results).ToString(), "OK");
    return results;
  }
  SampleResult Sample(const SampleSpec& spec) {
    return Sample(std::vector<SampleSpec>{spec})[0];
  }
  std::string RefusedField(const std::vector<SampleSpec>& specs) {
    std::vector<SampleResult> results(specs.size());
    return runner_.backend().Sample(specs, results).field();
  }

  double Logprob(size_t row, TokenId token) const {
    const double max =
        static_cast<double>(*std::max_element(logits_[row].begin(), logits_[row].end()));
    double sum = 0.0;
    for (const float logit : logits_[row]) {
      sum += std::exp(static_cast<double>(logit) - max);
    }
    return static_cast<double>(logits_[row][static_cast<size_t>(token)]) - max -
           std::log(sum);
  }

  TinyRunner runner_;
  std::vector<std::vector<float>> logits_;
  TokenId greedy_ = -1;
};

TEST_F(CpuBackendSample, ABannedTokenNeverComesWhateverItsBias) {
  const std::vector<LogitBias> bias = {{greedy_, 100.0f}};
  const std::vector<TokenId> banned = {greedy_};
  EXPECT_NE(Sample({.logit_bias = bias, .banned = banned}).token, greedy_);
  for (uint32_t i = 0; i < 100; ++i) {
    const SampleSpec spec{.temperature = 1.0f,
                          .logit_bias = bias,
                          .banned = banned,
                          .seed = 5,
                          .token_index = i};
    EXPECT_NE(Sample(spec).token, greedy_);
  }
}

TEST_F(CpuBackendSample, ABiasOf100ForcesATokenAndOneOfMinus100KeepsItAway) {
  const std::vector<LogitBias> away = {{greedy_, -100.0f}};
  const std::vector<LogitBias> forced = {{77, 100.0f}};
  for (const float temperature : {0.0f, 1.0f}) {
    for (uint32_t i = 0; i < 50; ++i) {
      SampleSpec spec{.temperature = temperature,
                      .logit_bias = away,
                      .logprobs = 1,
                      .seed = 9,
                      .token_index = i};
      const SampleResult without = Sample(spec);
      EXPECT_NE(without.token, greedy_);
      // Log-probabilities are those before the bias.
      EXPECT_EQ(without.top[0].token, greedy_);
      EXPECT_NEAR(static_cast<double>(without.logprob), Logprob(0, without.token), 2e-6);
      spec.logit_bias = forced;
      const SampleResult with = Sample(spec);
      EXPECT_EQ(with.token, 77);
      EXPECT_NEAR(static_cast<double>(with.logprob), Logprob(0, 77), 2e-6);
    }
  }
}

TEST_F(CpuBackendSample, PenaltiesChangeTheGreedyToken) {
  const std::vector<TokenCount> prompt = {{greedy_, 0}};
  const std::vector<TokenCount> answer = {{greedy_, 1000}};
  EXPECT_EQ(Sample({.frequency_penalty = 2.0f, .history = prompt}).token, greedy_);
  EXPECT_NE(Sample({.frequency_penalty = 2.0f, .history = answer}).token, greedy_);
  EXPECT_NE(Sample({.repetition_penalty = 10.0f, .history = prompt}).token, greedy_);
}

TEST_F(CpuBackendSample, TypicalPActs) {
  std::set<TokenId> few;
  std::set<TokenId> all;
  for (uint32_t i = 0; i < 300; ++i) {
    SampleSpec spec{.temperature = 5.0f, .seed = 1, .token_index = i};
    all.insert(Sample(spec).token);
    spec.typical_p = 0.1f;
    few.insert(Sample(spec).token);
  }
  EXPECT_LT(few.size() * 3, all.size());
}

TEST_F(CpuBackendSample, ManySpecsOnOneRowGetWhatEachGetsAloneAndLeaveItAsItIs) {
  const std::vector<LogitBias> bias = {{greedy_, -3.0f}, {4, 2.0f}};
  const std::vector<TokenId> banned = {1, 2, 3};
  const std::vector<TokenCount> history = {{greedy_, 2}, {8, 0}};
  std::vector<SampleSpec> specs;
  for (uint32_t choice = 0; choice < 60; ++choice) {
    SampleSpec spec{.temperature = choice % 7 == 0 ? 0.0f : 2.0f,
                    .top_k = choice % 5 == 0 ? 10 : 0,
                    .logprobs = static_cast<int32_t>(choice % 22) - 1,
                    .seed = 3,
                    .choice = choice};
    if (choice % 2 == 0) spec.logit_bias = bias;
    if (choice % 3 == 0) spec.banned = banned;
    if (choice % 4 == 0) spec.repetition_penalty = 1.5f;
    spec.history = history;
    specs.push_back(spec);
  }
  const std::vector<SampleResult> together = Sample(specs);
  std::set<TokenId> tokens;
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::vector<TopLogprob> top(together[i].top.begin(), together[i].top.end());
    EXPECT_EQ(top.size(), static_cast<size_t>(std::max(specs[i].logprobs, 0)));
    for (size_t k = 0; k < top.size(); ++k) {
      EXPECT_NEAR(static_cast<double>(top[k].logprob), Logprob(0, top[k].token), 2e-6);
      if (k > 0) {
        EXPECT_GE(top[k - 1].logprob, top[k].logprob);
      }
    }
    tokens.insert(together[i].token);
  }
  EXPECT_GT(tokens.size(), 10u);
  for (size_t i = 0; i < specs.size(); ++i) {
    const SampleResult alone = Sample(specs[i]);
    EXPECT_EQ(alone.token, together[i].token) << i;
    EXPECT_EQ(alone.logprob, together[i].logprob) << i;
  }
  const auto row = runner_.backend().Logits(0).value();
  EXPECT_EQ(std::memcmp(row.data(), logits_[0].data(), row.size_bytes()), 0);
}

TEST_F(CpuBackendSample, AGivenTokenIsNotDrawnButScored) {
  const std::vector<SampleResult> results =
      Sample({{.logit_row = 1, .given = 42, .logprobs = 3},
              {.logit_row = 1, .given = 42},
              {.logit_row = 1, .temperature = 1.0f, .given = 0, .logprobs = 0}});
  EXPECT_EQ(results[0].token, 42);
  EXPECT_NEAR(static_cast<double>(results[0].logprob), Logprob(1, 42), 2e-6);
  EXPECT_EQ(results[0].top.size(), 3u);
  EXPECT_EQ(results[1].token, 42);
  EXPECT_TRUE(results[1].finite);
  EXPECT_TRUE(results[1].top.empty());
  EXPECT_NEAR(static_cast<double>(results[2].logprob), Logprob(1, 0), 2e-6);
}

TEST_F(CpuBackendSample, ARowWithNothingLeftIsNotFiniteAndNothingCrashes) {
  std::vector<TokenId> all(101);
  for (TokenId token = 0; token < 101; ++token) all[static_cast<size_t>(token)] = token;
  for (const float temperature : {0.0f, 1.0f}) {
    const SampleResult result =
        Sample({.temperature = temperature, .top_k = 5, .banned = all, .logprobs = 2});
    EXPECT_FALSE(result.finite);
  }
}

TEST_F(CpuBackendSample, SpecsBeyondTheLimitsAreRefused) {
  // 40 sequences and 40 logit rows.
  EXPECT_EQ(RefusedField(std::vector<SampleSpec>(81)), "specs");
  EXPECT_EQ(Sample(std::vector<SampleSpec>(80)).back().token, greedy_);
  EXPECT_EQ(RefusedField({{.logprobs = 21}}), "logprobs");
  EXPECT_EQ(RefusedField({{.given = 101}}), "given");
}

TEST(CpuBackendSampleBroken, OneNaNIsFoundBehindABanAndUnderAGivenToken) {
  constexpr TokenId kBroken = 50;
  TinyModel model = MakeModel({TensorType::kF32}, TinyShape());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&model.embedding.bytes[static_cast<size_t>(kBroken) * 64 * 4], &nan, 4);
  TinyRunner runner(model, {.threads = 1}, KvDtype::kF16);
  TinySequence s = MakeSequence(3, 1, runner.free_pages);
  s.ids = {1, 2, 3};
  const auto logits = runner.Step({&s}, {3});
  EXPECT_TRUE(std::isfinite(logits[0][kBroken - 1]));
  const std::vector<TokenId> banned = {kBroken};
  const std::vector<LogitBias> bias = {{3, 1.0f}};
  const std::vector<SampleSpec> specs = {{.banned = banned},
                                         {.logit_bias = bias},
                                         {.temperature = 1.0f, .banned = banned},
                                         {.given = 3},
                                         {.given = 3, .logprobs = 2}};
  std::vector<SampleResult> results(specs.size());
  ASSERT_TRUE(runner.backend().Sample(specs, results).ok());
  for (const SampleResult& result : results) EXPECT_FALSE(result.finite);
}

}  // namespace
}  // namespace renga
