// Results do not depend on company, at random: over some two thousand requests on tiny
// models of every tensor type, ids, logits and log-probabilities are the bits of each
// request alone on a cold engine with portable kernels, whatever the company: batches,
// policies, slices by rows and by time, threads, instruction sets, prefix hits on shared
// beginnings, eviction, preemption, several choices, slow readers, seeds and parameters.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <random>

#include "tests/engine/sameness.h"
#include "tests/models/tiny_model.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RENGA_TEST_FEW_ROUNDS 1  // Some thirty times slower.
#endif
#endif

namespace renga {
namespace {

using test::TinyType;

#ifdef RENGA_TEST_FEW_ROUNDS
constexpr int kRounds = 2;
#else
constexpr int kRounds = 11;
#endif
constexpr int kRequests = 16;  // Of a round: 12 * 11 * 16 = 2,112 in all.

class RandomSamenessTest : public testing::TestWithParam<std::tuple<TinyType, KvDtype>> {
 protected:
  void SetUp() override {
    const auto [type, dtype] = GetParam();
    dtype_ = dtype;
    rng_.seed(static_cast<uint32_t>(type) * 8 + static_cast<uint32_t>(dtype));
    path_ = testing::TempDir() + "renga_random_sameness_" + test::TinyTypeName(type) +
            "_" + std::string(KvDtypeName(dtype)) + "_" + std::to_string(getpid()) +
            ".gguf";
    ASSERT_TRUE(test::WriteTinyModel({.type = type}, path_));
    auto file = GgufFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    file_ = std::move(*file);
  }
  void TearDown() override { std::remove(path_.c_str()); }

  // In [least, most].
  int64_t Pick(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(rng_() % static_cast<uint64_t>(most - least + 1));
  }
  bool Once(int in) { return rng_() % static_cast<uint32_t>(in) == 0; }
  float Fraction() { return static_cast<float>(Pick(1, 1000)) / 1000.0f; }

  // A beginning that others have as well, cut anywhere, and a tail.
  std::vector<TokenId> Prompt() {
    const int64_t borders[] = {0, 1, 63, 64, 65, 128, 129};
    const int64_t head = Once(2) ? borders[Pick(0, 6)] : Pick(0, 100);
    std::vector<TokenId> prompt = PromptOf(head, static_cast<int>(Pick(1, 2)));
    if (!prompt.empty() && Once(3)) return prompt;  // Others may have it whole.
    const std::vector<TokenId> tail = PromptOf(Pick(1, 20), static_cast<int>(Pick(3, 6)));
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    return prompt;
  }

  AskedFor Random() {
    AskedFor asked{.prompt = Prompt(), .tokens = Pick(1, Once(6) ? 70 : 8)};
    if (Once(4)) return asked;  // Greedy.
    asked.temperature = 0.2f + 1.5f * Fraction();
    SamplingParams& sampling = asked.sampling;
    if (Once(3)) sampling.top_k = static_cast<int32_t>(Pick(1, 50));
    if (Once(3)) sampling.top_p = Fraction();
    if (Once(4)) sampling.min_p = 0.2f * Fraction();
    if (Once(5)) sampling.typical_p = Fraction();
    if (Once(4)) sampling.repetition_penalty = 0.5f + Fraction();
    if (Once(4)) sampling.presence_penalty = 2.0f * Fraction() - 1.0f;
    if (Once(4)) sampling.frequency_penalty = 2.0f * Fraction() - 1.0f;
    if (Once(4)) {
      sampling.logit_bias = {{.token = 11, .bias = 3.0f}, {.token = 12, .bias = -100.0f}};
    }
    asked.n = Once(3) ? static_cast<int32_t>(Pick(2, 3)) : 1;
    if (Once(3)) asked.logprobs = static_cast<int32_t>(Pick(0, 3));
    if (Once(5)) asked.prompt_logprobs = static_cast<int32_t>(Pick(0, 2));
    asked.use_prefix_cache = !Once(6);
    if (Once(6)) asked.cache_salt = "other";
    return asked;
  }

  Company RandomCompany() {
    const int32_t slices[] = {1, 7, 64, 100, 0};
    const char* policies[] = {"window", "continuous", "serial"};
    return {.isa = Once(4) ? "portable" : "auto",
            .threads = static_cast<int32_t>(Pick(1, 2)),
            .dtype = dtype_,
            .batch = static_cast<int32_t>(Pick(2, 12)),
            .slice = slices[Pick(Once(4) ? 0 : 1, 4)],
            .pages = Once(3) ? 64 : Pick(4, 7),
            .rotate = static_cast<size_t>(Pick(0, kRequests - 1)),
            .reuse = !Once(5),
            .timed = Once(3),
            .slow_readers = Once(2),
            .policy = policies[Pick(0, 2)]};
  }

  std::mt19937 rng_;
  KvDtype dtype_{};
  std::string path_;
  std::unique_ptr<GgufFile> file_;
};

TEST_P(RandomSamenessTest, EveryRequestHasTheBitsOfARunAlone) {
  double preemptions = 0;
  double cached_tokens = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<AskedFor> asked;
    for (int i = 0; i < kRequests; ++i) asked.push_back(Random());
    const Heard alone = Ask(*file_, asked, {.dtype = dtype_});
    const Company company = RandomCompany();
    const Heard heard = Ask(*file_, asked, company);
    ExpectSame(alone, heard, "round " + std::to_string(round) + ", " + company.Name());
    if (HasFatalFailure()) return;
    preemptions += heard.preemptions;
    cached_tokens += heard.cached_tokens;
  }
  if (kRounds < 11) return;  // Too few for all of it to happen.
  EXPECT_GT(preemptions, 0) << "the pools were not small enough";
  EXPECT_GT(cached_tokens, 0) << "nothing was shared";
}

INSTANTIATE_TEST_SUITE_P(
    Types, RandomSamenessTest,
    testing::Combine(testing::Values(TinyType::kF32, TinyType::kF16, TinyType::kQ4_1,
                                     TinyType::kQ8_0),
                     testing::Values(KvDtype::kF32, KvDtype::kF16, KvDtype::kInt8)),
    [](const auto& tested) {
      return test::TinyTypeName(std::get<0>(tested.param)) + "_" +
             std::string(KvDtypeName(std::get<1>(tested.param)));
    });

}  // namespace
}  // namespace renga
