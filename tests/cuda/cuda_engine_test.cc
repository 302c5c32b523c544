// A whole engine on the CUDA backend under the emulator: batches, slices, prefixes,
// preemption, choices and log-probabilities of a tiny model. The same bits in any
// company, and the CPU's tokens wherever its logits leave no doubt.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/cuda/emulated_backend.h"
#include "tests/engine/sameness.h"
#include "tests/models/tiny_model.h"

namespace renga {
namespace {

using test::EmulatedOptions;
using test::MakeEmulatedCuda;
using test::TinyType;

// Activations in f16: how far a logit may be from the CPU's, as a share of the largest.
constexpr float kLogitBound = 1e-2f;

class CudaEngineTest : public testing::TestWithParam<KvDtype> {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "renga_cuda_engine_" +
            std::string(KvDtypeName(GetParam())) + "_" + std::to_string(getpid()) +
            ".gguf";
    ASSERT_TRUE(test::WriteTinyModel({.type = TinyType::kMixed, .context = 512}, path_));
    auto file = GgufFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    file_ = std::move(*file);
    const int64_t lengths[] = {1, 64, 65, 17, 130, 5};
    for (int i = 0; i < 6; ++i) {
      asked_.push_back({.prompt = PromptOf(lengths[i], i),
                        .tokens = 3 + i % 3,
                        .temperature = i % 2 == 0 ? 0.0f : 0.8f,
                        .n = i == 3 ? 2 : 1,
                        .logprobs = i == 1 ? 3 : -1});
    }
  }
  void TearDown() override { std::remove(path_.c_str()); }

  // The first requests alone are run with all checks of the emulator.
  Heard OnCuda(Company company, EmulatedOptions options = {}) const {
    company.dtype = GetParam();
    options.device.simt.counters = false;
    options.device.simt.checks = company.batch == 1;
    test::EmulatedCuda cuda = MakeEmulatedCuda(options);
    const Heard heard = AskOn(*cuda.backend, *file_, asked_, company);
    for (const test::SimtReport& report : cuda.simt->reports()) {
      ADD_FAILURE() << report.ToString();
    }
    return heard;
  }

  std::string path_;
  std::unique_ptr<GgufFile> file_;
  std::vector<AskedFor> asked_;
};

TEST_P(CudaEngineTest, AnswersAndLogitsAreTheSameBitsInAnyCompany) {
  if (!test::kSimtHooks) GTEST_SKIP() << "takes minutes under a sanitizer";
  const Heard alone = OnCuda({});
  const Company companies[] = {{.batch = 3, .slice = 64, .rotate = 2},
                               {.batch = 6, .slice = 17, .policy = "window"},
                               {.batch = 6, .slice = 0, .rotate = 5}};
  for (const Company& company : companies) {
    EmulatedOptions options;
    options.backend.graphs = company.slice != 17;
    options.device.simt.seed = static_cast<uint32_t>(1 + company.slice);
    ExpectSame(alone, OnCuda(company, options), company.Name());
  }
}

TEST_P(CudaEngineTest, APreemptedRequestIsComputedAgainWithTheSameBits) {
  if (!test::kSimtHooks) GTEST_SKIP() << "takes minutes under a sanitizer";
  asked_.resize(3);
  for (AskedFor& asked : asked_) asked.tokens += 66;  // More than the headroom.
  const Heard alone = OnCuda({});
  const Company company{.batch = 3, .slice = 64, .pages = 4};
  const Heard heard = OnCuda(company);
  EXPECT_GT(heard.preemptions, 0) << "the pool was not small enough";
  ExpectSame(alone, heard, company.Name());
}

TEST_P(CudaEngineTest, APrefixThatIsReusedGivesTheSameBits) {
  if (!test::kSimtHooks) GTEST_SKIP() << "takes minutes under a sanitizer";
  asked_.clear();
  for (int i = 0; i < 4; ++i) {
    AskedFor asked{.prompt = PromptOf(80 + 20 * i, 1), .tokens = 3};
    asked.prompt.back() = 7 + i;  // They part in their last token.
    asked_.push_back(asked);
  }
  const Heard fresh = OnCuda({});
  const Company company{.batch = 2, .slice = 64, .reuse = true};
  const Heard reused = OnCuda(company);
  EXPECT_GT(reused.cached_tokens, 0);
  ExpectSame(fresh, reused, company.Name());
}

TEST_P(CudaEngineTest, TheOrderInWhichTheDeviceRunsItsWorkDoesNotMatter) {
  if (!test::kSimtHooks) GTEST_SKIP() << "takes minutes under a sanitizer";
  asked_.resize(4);
  const Heard alone = OnCuda({});
  for (const uint32_t seed : {0u, 1u, 2u}) {
    Company company{.batch = 4, .slice = 64, .rotate = seed, .reuse = seed == 1};
    company.dtype = GetParam();
    test::LazyCuda cuda = test::MakeLazyCuda(
        {.seed = seed, .eager = seed == 0, .simt = {.counters = false}});
    ExpectSame(alone, AskOn(*cuda.backend, *file_, asked_, company), company.Name());
    EXPECT_THAT(cuda.End(), testing::IsEmpty()) << seed;
  }
}

TEST_P(CudaEngineTest, ALostDeviceEndsEveryRequestAndTheEngine) {
  test::LazyCuda cuda = test::MakeLazyCuda({.seed = 3});
  const EngineOptions options = OptionsFor({.batch = 2, .slice = 64}, asked_);
  auto transformer =
      Transformer::Load(*file_, *cuda.backend, EngineBackendLimits(options));
  ASSERT_TRUE(transformer.ok());
  const GraphShape& graph = (*transformer)->config().graph;
  ASSERT_TRUE(cuda.backend
                  ->CreateKvPool({.layers = graph.layers,
                                  .kv_heads = graph.kv_heads,
                                  .head_dim = graph.head_dim,
                                  .dtype = GetParam()},
                                 options.pages)
                  .ok());
  {
    EngineHarness harness(options, **transformer,
                          {.max_requests = 1 << 20, .max_tokens = 1 << 20});
    std::vector<CollectingSink*> sinks;
    for (int i = 0; i < 4; ++i) sinks.push_back(&harness.Submit(PromptOf(20, i), 8));
    cuda.device->FailAt(test::DeviceCall::kSynchronize, 4, Unavailable("Xid 79"));
    harness.engine.Run();  // Returns though nobody closed the queue.
    harness.ExpectAllEnded();
    for (const CollectingSink* sink : sinks) {
      EXPECT_EQ(sink->completion().status.code(), StatusCode::kUnavailable);
      EXPECT_EQ(sink->completion().status.message().find("Xid"), std::string::npos);
    }
  }
  transformer->reset();
  EXPECT_THAT(cuda.End(), testing::IsEmpty());
}

// Greedy answers are compared up to the first token that the CPU itself is not sure of.
TEST_P(CudaEngineTest, TokensAreTheCpusWhereItsLogitsLeaveNoDoubt) {
  for (AskedFor& asked : asked_) {
    asked.temperature = 0.0f;
    asked.n = 1;
    asked.tokens = 8;
  }
  Company company{.precision = "high"};
  company.dtype = GetParam();
  const Heard cpu = Ask(*file_, asked_, company);
  const Heard cuda = OnCuda({});
  int64_t compared = 0;
  for (size_t request = 0; request < asked_.size(); ++request) {
    for (uint32_t i = 0; i < 8; ++i) {
      const LogitRecorder::Key key{.seed = 1 + request, .token_index = i};
      std::vector<float> expected = cpu.logits.at(key);
      const std::vector<float>& got = cuda.logits.at(key);
      float largest = 0.0f;
      for (const float logit : expected) largest = std::max(largest, std::abs(logit));
      for (size_t t = 0; t < got.size(); ++t) {
        ASSERT_NEAR(got[t], expected[t], largest * kLogitBound) << request << " " << i;
      }
      std::nth_element(expected.begin(), expected.begin() + 1, expected.end(),
                       std::greater<>());
      if (expected[0] - expected[1] < 2 * largest * kLogitBound) break;
      ASSERT_EQ(cuda.ids(request)[i], cpu.ids(request)[i]) << request << " " << i;
      ++compared;
    }
  }
  EXPECT_GT(compared, 20);
}

INSTANTIATE_TEST_SUITE_P(Pages, CudaEngineTest,
                         testing::Values(KvDtype::kF16, KvDtype::kInt8),
                         [](const auto& tested) {
                           return std::string(KvDtypeName(tested.param));
                         });

}  // namespace
}  // namespace renga
