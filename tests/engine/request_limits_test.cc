// RequestLimits: every field that an engine request may get wrong is named.

#include "engine/request_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace renga {
namespace {

using testing::HasSubstr;

constexpr RequestLimits kLimits{
    .context = 200, .vocab = 100, .pages = 3, .max_sequences = 4};

EngineRequest Good() {
  EngineRequest request;
  request.prompt = {0, 5, 99};
  request.max_tokens = 10;
  request.max_tokens_given = true;
  return request;
}

std::string FieldOf(const std::function<void(EngineRequest&)>& spoil) {
  EngineRequest request = Good();
  spoil(request);
  return CheckEngineRequest(request, kLimits).field();
}

TEST(RequestLimitsTest, WhatIsAtItsLimitPasses) {
  EXPECT_TRUE(CheckEngineRequest(Good(), kLimits).ok());
  EngineRequest request = Good();
  request.prompt.assign(192, 1);  // Three whole pages.
  request.max_tokens = std::numeric_limits<int64_t>::max();
  request.min_tokens = request.max_tokens;
  request.n = 4;
  request.logprobs = 20;
  request.prompt_logprobs = 0;
  request.end_tokens = {0, 99};
  request.stop_tokens = {99};
  request.sampling.logit_bias = {{.token = 0, .bias = -100.0f},
                                 {.token = 99, .bias = 100.0f}};
  EXPECT_TRUE(CheckEngineRequest(request, kLimits).ok());
  request.max_tokens = 0;
  request.min_tokens = 0;
  EXPECT_TRUE(CheckEngineRequest(request, kLimits).ok());
}

TEST(RequestLimitsTest, ThePromptMustFitContextPoolAndVocabulary) {
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.prompt.clear(); }), "prompt");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.prompt.assign(200, 1); }), "prompt");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.prompt.assign(193, 1); }), "prompt");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.prompt = {100}; }), "prompt");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.prompt = {-1}; }), "prompt");
  EngineRequest request = Good();
  request.prompt.assign(200, 1);
  EXPECT_THAT(CheckEngineRequest(request, kLimits).message(),
              testing::AllOf(HasSubstr("200 tokens"), HasSubstr("holds 200")));
}

TEST(RequestLimitsTest, CountsAreNamed) {
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.max_tokens = -1; }), "max_tokens");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.min_tokens = -1; }), "min_tokens");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.min_tokens = 11; }), "min_tokens");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.n = 0; }), "n");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.n = 5; }), "n");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.logprobs = 21; }), "logprobs");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.prompt_logprobs = 21; }), "prompt_logprobs");
}

TEST(RequestLimitsTest, TokensThatEndTheAnswerAreInsideTheVocabularyAndLeaveOthers) {
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.end_tokens = {100}; }), "end_tokens");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.stop_tokens = {-1}; }), "stop_token_ids");
  const auto all_end = [](EngineRequest& r) {
    for (TokenId token = 0; token < 100; ++token) r.stop_tokens.push_back(token);
    r.min_tokens = 1;
  };
  EXPECT_EQ(FieldOf(all_end), "min_tokens");
  EXPECT_EQ(FieldOf([&](EngineRequest& r) {
              all_end(r);
              r.stop_tokens[7] = 8;  // 100 of them, but 7 is left.
            }),
            "");
}

TEST(RequestLimitsTest, SamplingParametersAreFiniteAndBiasNamesEachTokenOnce) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.sampling.temperature = kNan; }),
            "temperature");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.sampling.typical_p = kNan; }), "typical_p");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.sampling.top_p = kInfinity; }), "top_p");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.sampling.min_p = kNan; }), "min_p");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.sampling.repetition_penalty = 0.0f; }),
            "repetition_penalty");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.sampling.presence_penalty = kInfinity; }),
            "presence_penalty");
  EXPECT_EQ(FieldOf([](EngineRequest& r) { r.sampling.frequency_penalty = kNan; }),
            "frequency_penalty");
  const auto bias = [](TokenId token, float value) {
    return [=](EngineRequest& r) {
      r.sampling.logit_bias = {{.token = 5, .bias = 1.0f},
                               {.token = token, .bias = value}};
    };
  };
  EXPECT_EQ(FieldOf(bias(100, 1.0f)), "logit_bias");
  EXPECT_EQ(FieldOf(bias(-1, 1.0f)), "logit_bias");
  EXPECT_EQ(FieldOf(bias(6, kNan)), "logit_bias");
  EXPECT_EQ(FieldOf(bias(5, 1.0f)), "logit_bias");
}

}  // namespace
}  // namespace renga
