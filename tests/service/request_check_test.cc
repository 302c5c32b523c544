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

Status Check(const std::function<void(GenerateRequest&)>& set) {
  GenerateRequest request;
  set(request);
  return CheckParameters(request, kVocab);
}

float Below(float value) { return std::nextafter(value, -kInf); }
float Above(float value) { return std::nextafter(value, kInf); }

// Cases C1, C3: each number at its limits, just beyond them, and as no number at all.
TEST(RequestCheckTest, EveryRealNumberHasItsLimits) {
  struct Limits {
    std::string field;
    std::function<void(GenerateRequest&, float)> set;
    float least;  // Accepted.
    float most;   // Accepted.
  };
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<Limits> all = {
      {"temperature", [](auto& r, float v) { r.sampling.temperature = v; }, 0, 100},
      {"typical_p", [](auto& r, float v) { r.sampling.typical_p = v; }, tiny, 1},
      {"top_p", [](auto& r, float v) { r.sampling.top_p = v; }, tiny, 1},
      {"min_p", [](auto& r, float v) { r.sampling.min_p = v; }, 0, 1},
      {"repetition_penalty", [](auto& r, float v) { r.sampling.repetition_penalty = v; },
       tiny, 10},
      {"presence_penalty", [](auto& r, float v) { r.sampling.presence_penalty = v; }, -2,
       2},
      {"frequency_penalty", [](auto& r, float v) { r.sampling.frequency_penalty = v; },
       -2, 2},
      {"logit_bias[0].bias",
       [](auto& r, float v) {
         r.sampling.logit_bias = {{5, v}};
       },
       -100, 100},
  };
  for (const Limits& limits : all) {
    SCOPED_TRACE(limits.field);
    const auto with = [&](float value) {
      return Check([&](GenerateRequest& r) { limits.set(r, value); });
    };
    EXPECT_TRUE(with(limits.least).ok());
    EXPECT_TRUE(with(limits.most).ok());
    for (const float wrong : {Below(limits.least), Above(limits.most), -1e30f, 1e30f,
                              kNan, -kNan, kInf, -kInf}) {
      const Status status = with(wrong);
      EXPECT_EQ(status.field(), limits.field) << wrong;
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << wrong;
    }
  }
}

// Cases C3, C7.
TEST(RequestCheckTest, EveryWholeNumberHasItsLimits) {
  struct Limits {
    std::string field;
    std::function<void(GenerateRequest&, int64_t)> set;
    int64_t least;
    int64_t most;
  };
  constexpr int64_t kMax32 = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
  const auto narrow = [](int64_t v) { return static_cast<int32_t>(v); };
  const std::vector<Limits> all = {
      {"top_k", [&](auto& r, int64_t v) { r.sampling.top_k = narrow(v); }, -1, kMax32},
      {"n", [&](auto& r, int64_t v) { r.n = narrow(v); }, 1, 16},
      {"logprobs", [&](auto& r, int64_t v) { r.logprobs = narrow(v); }, 0, 20},
      {"prompt_logprobs", [&](auto& r, int64_t v) { r.prompt_logprobs = narrow(v); }, 0,
       20},
      {"max_tokens", [](auto& r, int64_t v) { r.max_tokens = v; }, 1, kMax64},
      {"max_tokens",
       [](auto& r, int64_t v) {
         r.echo = true;
         r.max_tokens = v;
       },
       0, kMax64},
      {"max_tokens",
       [](auto& r, int64_t v) {
         r.prompt_logprobs = 0;
         r.max_tokens = v;
       },
       0, kMax64},
      {"min_tokens", [](auto& r, int64_t v) { r.min_tokens = v; }, 0, kMax64},
      {"min_tokens",
       [](auto& r, int64_t v) {
         r.max_tokens = 7;
         r.min_tokens = v;
       },
       0, 7},
  };
  for (size_t i = 0; i < all.size(); ++i) {
    const Limits& limits = all[i];
    SCOPED_TRACE(limits.field + ", row " + std::to_string(i));
    const auto with = [&](int64_t value) {
      return Check([&](GenerateRequest& r) { limits.set(r, value); });
    };
    EXPECT_TRUE(with(limits.least).ok()) << with(limits.least).ToString();
    EXPECT_TRUE(with(limits.most).ok()) << with(limits.most).ToString();
    std::vector<int64_t> wrong = {limits.least - 1, std::numeric_limits<int32_t>::min()};
    if (limits.most < kMax32) wrong.insert(wrong.end(), {limits.most + 1, kMax32});
    for (const int64_t value : wrong) {
      const Status status = with(value);
      EXPECT_EQ(status.field(), limits.field) << value;
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << value;
    }
  }
}

// Case C5, and the lists and strings.
TEST(RequestCheckTest, EveryListAndStringIsCheckedByName) {
  struct Case {
    std::string field;  // That must be blamed; empty: accepted.
    std::function<void(GenerateRequest&)> set;
  };
  const auto biases = [](TokenId count) {
    std::vector<LogitBias> list;
    for (TokenId i = 0; i < count; ++i) list.push_back({.token = i, .bias = 1.0f});
    return list;
  };
  const std::vector<Case> cases = {
      {"", [](GenerateRequest&) {}},
      {"logit_bias[0].token_id",
       [](auto& r) {
         r.sampling.logit_bias = {{-1, 0}};
       }},
      {"logit_bias[0].token_id",
       [](auto& r) {
         r.sampling.logit_bias = {{kVocab, 0}};
       }},
      {"",
       [](auto& r) {
         r.sampling.logit_bias = {{kVocab - 1, 0}};
       }},
      {"logit_bias[1].token_id",
       [](auto& r) {
         r.sampling.logit_bias = {{0, 0}, {std::numeric_limits<TokenId>::max(), 0}};
       }},
      {"logit_bias[1].bias",
       [](auto& r) {
         r.sampling.logit_bias = {{0, 0}, {1, 100.5f}};
       }},
      {"logit_bias",
       [](auto& r) {
         r.sampling.logit_bias = {{3, 1}, {4, 1}, {3, 1}};
       }},
      {"", [&](auto& r) { r.sampling.logit_bias = biases(kVocab); }},
      {"stop[1]",
       [](auto& r) {
         r.stop = {"a", ""};
       }},
      {"stop[0]", [](auto& r) { r.stop = {std::string(kMaxStopBytes + 1, 'x')}; }},
      {"", [](auto& r) { r.stop = {std::string(kMaxStopBytes, 'x')}; }},
      {"stop[1]",
       [](auto& r) {
         r.stop = {"ok", "\xff"};
       }},
      {"stop", [](auto& r) { r.stop.assign(kMaxStopStrings + 1, "x"); }},
      {"", [](auto& r) { r.stop.assign(kMaxStopStrings, "x"); }},
      {"stop_token_ids[0]", [](auto& r) { r.stop_token_ids = {-1}; }},
      {"stop_token_ids[1]",
       [](auto& r) {
         r.stop_token_ids = {0, kVocab};
       }},
      {"", [](auto& r) { r.stop_token_ids = {kVocab - 1}; }},
      {"stop_token_ids", [](auto& r) { r.stop_token_ids.assign(kMaxStopTokens + 1, 1); }},
      {"x-tenant-id", [](auto& r) { r.tenant = std::string(129, 't'); }},
      {"", [](auto& r) { r.tenant = std::string(128, 't'); }},
      {"cache_salt", [](auto& r) { r.cache_salt = std::string(257, 's'); }},
      {"", [](auto& r) { r.cache_salt = std::string(256, '\xff'); }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const Status status = Check(cases[i].set);
    EXPECT_EQ(status.field(), cases[i].field)
        << "case " << i << ": " << status.ToString();
    EXPECT_EQ(status.ok(), cases[i].field.empty()) << "case " << i;
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    }
  }
}

TEST(RequestCheckTest, AtMost1024LogitBiasesAreTaken) {
  GenerateRequest request;
  for (TokenId i = 0; i < 1024; ++i) request.sampling.logit_bias.push_back({i, 1.0f});
  EXPECT_TRUE(CheckParameters(request, 5000).ok());
  request.sampling.logit_bias.push_back({1024, 1.0f});
  EXPECT_EQ(CheckParameters(request, 5000).field(), "logit_bias");
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
