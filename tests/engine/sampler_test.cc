// Sampler: the order to the backend holds the request's own parameters and nothing else.

#include "engine/sampler.h"

#include <gtest/gtest.h>

namespace renga {
namespace {

TEST(SamplerTest, TheDrawIsKeyedByTheSeedAndTheIndexInTheAnswer) {
  EngineRequest request;
  request.prompt = {1, 2, 3};
  request.seed = ~uint64_t{0};
  request.sampling = {
      .temperature = 0.5f, .top_k = 7, .top_p = 0.25f, .min_p = 0.125f, .seed = {}};
  Sequence sequence(std::move(request), 0);
  sequence.Append(4);
  sequence.Append(5);
  const SampleSpec spec = MakeSampleSpec(sequence, 11);
  EXPECT_EQ(spec.logit_row, 11);
  EXPECT_EQ(spec.temperature, 0.5f);
  EXPECT_EQ(spec.top_k, 7);
  EXPECT_EQ(spec.top_p, 0.25f);
  EXPECT_EQ(spec.min_p, 0.125f);
  EXPECT_EQ(spec.seed, ~uint64_t{0});
  EXPECT_EQ(spec.choice, 0u);
  EXPECT_EQ(spec.token_index, 2u);
}

TEST(SamplerTest, MinusOneForTopKIsOff) {
  EngineRequest request;
  request.prompt = {1};
  request.sampling.top_k = -1;
  EXPECT_EQ(MakeSampleSpec(Sequence(std::move(request), 0), 0).top_k, 0);
}

TEST(SamplerTest, WhatIsNoTokenFailsAsInternal) {
  EXPECT_TRUE(CheckSample({.token = 9, .finite = true}, 10).ok());
  EXPECT_EQ(CheckSample({.token = 9, .finite = false}, 10).code(), StatusCode::kInternal);
  EXPECT_EQ(CheckSample({.token = 10, .finite = true}, 10).code(), StatusCode::kInternal);
  EXPECT_EQ(CheckSample({.token = -1, .finite = true}, 10).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace renga
