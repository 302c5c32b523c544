// CudaBackend::Sample: whichever of device and host draws, it is the token that the
// definition (kernels/sampling.h) draws from the same logits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "backend/sample_row.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/backend/tiny_model.h"
#include "tests/cuda/emulated_backend.h"

namespace renga {
namespace {

class CudaBackendSample : public ::testing::Test {
 protected:
  CudaBackendSample()
      : cuda_(test::MakeEmulatedCuda()),
        runner_(MakeModel({TensorType::kF32}, TinyShape()), std::move(cuda_.backend),
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

  // What the definition says.
  SampleResult Expected(const SampleSpec& spec) {
    const std::vector<float>& logits = logits_[static_cast<size_t>(spec.logit_row)];
    scratch_.resize(SampleScratchBytes(101) + 64);
    void* aligned = scratch_.data();
    size_t left = scratch_.size();
    std::align(64, SampleScratchBytes(101), aligned, left);
    edited_.resize(101);
    top_.resize(kMaxTopLogprobs);
    return SampleRow(
        *BestCpuOps(), logits, spec,
        {.scratch = MakeSampleScratch(aligned, 101), .edited = edited_, .top = top_});
  }

  test::EmulatedCuda cuda_;
  TinyRunner runner_;
  std::vector<std::vector<float>> logits_;
  TokenId greedy_ = -1;
  std::vector<std::byte> scratch_;
  std::vector<float> edited_;
  std::vector<TopLogprob> top_;
};

TEST_F(CudaBackendSample, DeviceAndHostDrawWhatTheDefinitionDraws) {
  const std::vector<LogitBias> bias = {{greedy_, -3.0f}, {4, 2.0f}};
  const std::vector<TokenId> banned = {1, 2, greedy_};
  std::mt19937 random(3);
  std::vector<SampleSpec> specs;
  for (uint32_t i = 0; i < 80; ++i) {
    SampleSpec spec{
        .logit_row = static_cast<int32_t>(i % 2),
        .temperature = i % 7 == 0 ? 0.0f : 0.5f + 0.25f * static_cast<float>(i % 9),
        .top_k = i % 5 == 0 ? 10 : 0,
        .top_p = i % 3 == 0 ? 0.9f : 1.0f,
        .min_p = i % 4 == 0 ? 0.02f : 0.0f,
        .seed = random(),
        .choice = i % 3,
        .token_index = i};
    if (i % 6 == 1) spec.typical_p = 0.5f;
    if (i % 6 == 2) spec.logit_bias = bias;
    if (i % 6 == 3) spec.banned = banned;
    if (i % 6 == 4) spec.logprobs = 3;
    if (i == 70) spec.given = 42;
    specs.push_back(spec);
  }
  const std::vector<SampleResult> results = Sample(specs);
  for (size_t i = 0; i < specs.size(); ++i) {
    const SampleResult expected = Expected(specs[i]);
    EXPECT_EQ(results[i].token, expected.token) << i;
    EXPECT_TRUE(results[i].finite) << i;
    EXPECT_EQ(results[i].logprob, expected.logprob) << i;
    ASSERT_EQ(results[i].top.size(), expected.top.size()) << i;
    for (size_t k = 0; k < expected.top.size(); ++k) {
      EXPECT_EQ(results[i].top[k].token, expected.top[k].token) << i;
    }
  }
}

TEST_F(CudaBackendSample, SpecsBeyondTheLimitsAreRefused) {
  const auto field = [&](const std::vector<SampleSpec>& specs) {
    std::vector<SampleResult> results(specs.size());
    return runner_.backend().Sample(specs, results).field();
  };
  EXPECT_EQ(field(std::vector<SampleSpec>(81)), "specs");
  EXPECT_EQ(field({{.logit_row = 2}}), "logit_row");
  EXPECT_EQ(field({{.logprobs = 21}}), "logprobs");
  EXPECT_EQ(field({{.given = 101}}), "given");
  EXPECT_EQ(Sample(std::vector<SampleSpec>(80)).back().token, greedy_);
}

TEST(CudaBackendSampleBroken, ARowWithANaNGivesNothing) {
  TinyModel model = MakeModel({TensorType::kF32}, TinyShape());
  model.output_norm[3] = std::numeric_limits<float>::quiet_NaN();
  test::EmulatedCuda cuda = test::MakeEmulatedCuda();
  TinyRunner runner(model, std::move(cuda.backend), KvDtype::kF16);
  TinySequence s = MakeSequence(9, 1, runner.free_pages);
  runner.Step({&s}, {9});
  const std::vector<SampleSpec> specs = {
      {}, {.temperature = 5.0f, .seed = 7}, {.typical_p = 0.5f}, {.logprobs = 2}};
  std::vector<SampleResult> results(specs.size());
  ASSERT_TRUE(runner.backend().Sample(specs, results).ok());
  for (const SampleResult& result : results) EXPECT_FALSE(result.finite);
}

}  // namespace
}  // namespace renga
