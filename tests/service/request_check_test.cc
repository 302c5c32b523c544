#include "service/request_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace renga {
namespace {

constexpr int64_t kVocab = 100;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  std::string field;  // That must be blamed; empty: accepted.
  std::function<void(GenerateRequest&)> set;
};

TEST(RequestCheckTest, EveryParameterIsCheckedByName) {
  const std::vector<Case> cases = {
      {"", [](GenerateRequest&) {}},
      {"temperature", [](auto& r) { r.sampling.temperature = kNan; }},
      {"temperature", [](auto& r) { r.sampling.temperature = kInf; }},
      {"temperature", [](auto& r) { r.sampling.temperature = -0.1f; }},
      {"temperature", [](auto& r) { r.sampling.temperature = 100.5f; }},
      {"", [](auto& r) { r.sampling.temperature = 0.0f; }},
      {"", [](auto& r) { r.sampling.temperature = 100.0f; }},
      {"top_k", [](auto& r) { r.sampling.top_k = -2; }},
      {"", [](auto& r) { r.sampling.top_k = -1; }},
      {"", [](auto& r) { r.sampling.top_k = 0; }},
      {"", [](auto& r) { r.sampling.top_k = std::numeric_limits<int32_t>::max(); }},
      {"top_p", [](auto& r) { r.sampling.top_p = 0.0f; }},
      {"top_p", [](auto& r) { r.sampling.top_p = 1.0000001f; }},
      {"top_p", [](auto& r) { r.sampling.top_p = -0.1f; }},
      {"top_p", [](auto& r) { r.sampling.top_p = kNan; }},
      {"", [](auto& r) { r.sampling.top_p = 1e-9f; }},
      {"min_p", [](auto& r) { r.sampling.min_p = 1.1f; }},
      {"min_p", [](auto& r) { r.sampling.min_p = -0.1f; }},
      {"min_p", [](auto& r) { r.sampling.min_p = kNan; }},
      {"", [](auto& r) { r.sampling.min_p = 1.0f; }},
      {"max_tokens", [](auto& r) { r.max_tokens = 0; }},
      {"max_tokens", [](auto& r) { r.max_tokens = -1; }},
      {"", [](auto& r) { r.max_tokens = std::numeric_limits<int64_t>::max(); }},
      {"stop[1]",
       [](auto& r) {
         r.stop = {"a", ""};
       }},
      {"stop[0]", [](auto& r) { r.stop = {std::string(kMaxStopBytes + 1, 'x')}; }},
      {"", [](auto& r) { r.stop = {std::string(kMaxStopBytes, 'x')}; }},
      {"stop", [](auto& r) { r.stop.assign(kMaxStopStrings + 1, "x"); }},
      {"", [](auto& r) { r.stop.assign(kMaxStopStrings, "x"); }},
      {"stop_token_ids[0]", [](auto& r) { r.stop_token_ids = {-1}; }},
      {"stop_token_ids[1]",
       [](auto& r) {
         r.stop_token_ids = {0, kVocab};
       }},
      {"", [](auto& r) { r.stop_token_ids = {kVocab - 1}; }},
      {"stop_token_ids", [](auto& r) { r.stop_token_ids.assign(kMaxStopTokens + 1, 1); }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    GenerateRequest request;
    cases[i].set(request);
    const Status status = CheckParameters(request, kVocab);
    EXPECT_EQ(status.field(), cases[i].field)
        << "case " << i << ": " << status.ToString();
    EXPECT_EQ(status.ok(), cases[i].field.empty()) << "case " << i;
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    }
  }
}

TEST(RequestCheckTest, EveryPromptFormIsCheckedByName) {
  using Ids = std::vector<TokenId>;
  const std::vector<std::pair<std::string, PromptInput>> cases = {
      {"", std::string("hi")},
      {"", std::string()},
      {"token_ids", Ids{}},
      {"token_ids[0]", Ids{-1}},
      {"token_ids[2]", Ids{0, 1, kVocab}},
      {"", Ids{0, kVocab - 1}},
      {"messages", ChatInput{}},
      {"messages[0].role", ChatInput{.messages = {{"", "hi"}}}},
      {"messages[1].role", ChatInput{.messages = {{"user", "hi"}, {"robot", "hi"}}}},
      {"", ChatInput{.messages = {{"system", ""}, {"user", "hi"}, {"assistant", "a"}}}},
      {"messages",
       ChatInput{.messages = std::vector<ChatMessage>(kMaxMessages + 1, {"user", "hi"})}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const Status status = CheckPrompt(cases[i].second, kVocab);
    EXPECT_EQ(status.field(), cases[i].first)
        << "case " << i << ": " << status.ToString();
    EXPECT_EQ(status.ok(), cases[i].first.empty()) << "case " << i;
  }
}

TEST(RequestCheckTest, TheLoadedModelHasThreeNames) {
  EXPECT_TRUE(CheckModelName("", "tiny").ok());
  EXPECT_TRUE(CheckModelName("default", "tiny").ok());
  EXPECT_TRUE(CheckModelName("tiny", "tiny").ok());
  EXPECT_EQ(CheckModelName("Tiny", "tiny").code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace renga
