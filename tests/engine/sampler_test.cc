// Sampler: the order to the backend holds the request's own parameters and nothing else.

#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/request_group.h"

namespace renga {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

EngineRequest Request(std::vector<TokenId> prompt) {
  EngineRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = 10;
  return request;
}

TEST(SamplerTest, TheDrawIsKeyedByTheSeedTheChoiceAndTheIndexInTheAnswer) {
  EngineRequest request = Request({1, 2, 3});
  request.seed = ~uint64_t{0};
  request.n = 3;
  RequestGroup group(std::move(request), 1, {});
  group.Reserve();
  group.choices()[2].Append(4);
  group.choices()[2].Append(5);
  const SampleSpec spec = MakeSampleSpec(group.choices()[2], 11);
  EXPECT_EQ(spec.logit_row, 11);
  EXPECT_EQ(spec.seed, ~uint64_t{0});
  EXPECT_EQ(spec.choice, 2u);
  EXPECT_EQ(spec.token_index, 2u);
  EXPECT_EQ(spec.given, -1);
  EXPECT_EQ(MakeSampleSpec(group.choices()[1], 0).token_index, 0u);
}

TEST(SamplerTest, EveryParameterReachesTheDevice) {
  EngineRequest request = Request({1, 2, 3});
  request.logprobs = 5;
  request.sampling = {.temperature = 0.5f,
                      .top_k = 7,
                      .typical_p = 0.75f,
                      .top_p = 0.25f,
                      .min_p = 0.125f,
                      .repetition_penalty = 1.5f,
                      .presence_penalty = -0.5f,
                      .frequency_penalty = 2.0f,
                      .logit_bias = {{.token = 9, .bias = -100.0f}},
                      .seed = {}};
  RequestGroup group(std::move(request), 1, {});
  group.Reserve();
  group.first().Append(2);
  const SampleSpec spec = MakeSampleSpec(group.first(), 0);
  EXPECT_EQ(spec.temperature, 0.5f);
  EXPECT_EQ(spec.top_k, 7);
  EXPECT_EQ(spec.typical_p, 0.75f);
  EXPECT_EQ(spec.top_p, 0.25f);
  EXPECT_EQ(spec.min_p, 0.125f);
  EXPECT_EQ(spec.repetition_penalty, 1.5f);
  EXPECT_EQ(spec.presence_penalty, -0.5f);
  EXPECT_EQ(spec.frequency_penalty, 2.0f);
  EXPECT_EQ(spec.logprobs, 5);
  ASSERT_EQ(spec.logit_bias.size(), 1u);
  EXPECT_EQ(spec.logit_bias[0].token, 9);
  ASSERT_EQ(spec.history.size(), 3u);
  EXPECT_EQ(spec.history[1].token, 2);
  EXPECT_EQ(spec.history[1].in_answer, 1);
}

TEST(SamplerTest, EndAndStopTokensAreBannedUntilMinTokens) {
  EngineRequest request = Request({1});
  request.end_tokens = {2};
  request.stop_tokens = {3, 4};
  request.min_tokens = 2;
  RequestGroup group(std::move(request), 1, {});
  EXPECT_THAT(MakeSampleSpec(group.first(), 0).banned, ElementsAre(2, 3, 4));
  group.first().Append(9);
  EXPECT_THAT(MakeSampleSpec(group.first(), 0).banned, ElementsAre(2, 3, 4));
  group.first().Append(9);
  EXPECT_THAT(MakeSampleSpec(group.first(), 0).banned, IsEmpty());
}

TEST(SamplerTest, MinusOneForTopKIsOff) {
  EngineRequest request = Request({1});
  request.sampling.top_k = -1;
  RequestGroup group(std::move(request), 1, {});
  EXPECT_EQ(MakeSampleSpec(group.first(), 0).top_k, 0);
}

TEST(SamplerTest, AScoreAsksForThePromptsNextToken) {
  EngineRequest request = Request({4, 5, 6});
  request.prompt_logprobs = 3;
  request.logprobs = 7;
  RequestGroup group(std::move(request), 1, {});
  const SampleSpec spec = MakeScoreSpec(group.first(), 1, 8);
  EXPECT_EQ(spec.given, 6);
  EXPECT_EQ(spec.logprobs, 3);
  EXPECT_EQ(spec.logit_row, 8);
}

TEST(SamplerTest, WhatIsNoTokenFailsAsInternal) {
  EXPECT_TRUE(CheckSample({.token = 9, .finite = true}, 10).ok());
  EXPECT_EQ(CheckSample({.token = 9, .finite = false}, 10).code(), StatusCode::kInternal);
  EXPECT_EQ(CheckSample({.token = 10, .finite = true}, 10).code(), StatusCode::kInternal);
  EXPECT_EQ(CheckSample({.token = -1, .finite = true}, 10).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace renga
