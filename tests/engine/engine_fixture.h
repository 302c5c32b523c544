// EngineTest: the fixture of all tests that drive an engine on the fake device, whose
// every answer is known.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backend/forwarding_backend.h"
#include "tests/engine/engine_harness.h"
#include "tests/fakes/fake_backend.h"

namespace renga {

// The fake device, whose page copies a test may let fail.
class CopyingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  Status CopyPageHead(PageId from, PageId to, int32_t tokens) override {
    ++copies;
    return copies == fail_copy ? Internal("lost a copy at /dev/x")
                               : ForwardingBackend::CopyPageHead(from, to, tokens);
  }

  int64_t copies = 0;
  int64_t fail_copy = -1;  // The copy with this number fails, from 1.
};

class EngineTest : public testing::Test {
 protected:
  void Build(EngineOptions options, int64_t context = 1024) {
    harness_.reset();
    transformer_ = WeightlessTransformer(copying_, context, options, 1000, dtype_);
    harness_ = std::make_unique<EngineHarness>(options, *transformer_);
  }
  EngineHarness& h() { return *harness_; }

  // Runs `action` on the engine thread inside step number `step`, from 1.
  void InStep(int64_t step, std::function<void()> action) {
    backend_.on_step = [step, action = std::move(action)](int64_t now) {
      if (now == step) action();
      return OkStatus();
    };
  }
  void ExpectAnswer(const CollectingSink& sink, const std::vector<TokenId>& prompt,
                    int64_t tokens) {
    EXPECT_THAT(sink.tokens(),
                testing::ElementsAreArray(backend_.ExpectedAnswer(prompt, tokens)));
    EXPECT_EQ(sink.completion().usage.prompt_tokens, static_cast<int64_t>(prompt.size()));
  }
  // A request that draws, so that each choice has an answer of its own.
  EngineRequest Drawing(std::vector<TokenId> prompt, int64_t tokens, int32_t n) {
    EngineRequest request = h().Request(std::move(prompt), tokens);
    request.sampling.temperature = 1.0f;
    request.seed = kSeed;
    request.n = n;
    return request;
  }
  std::vector<TokenId> Drawn(const std::vector<TokenId>& prompt, int64_t tokens,
                             int32_t choice) const {
    return backend_.ExpectedAnswer(prompt, tokens, 1.0f, kSeed,
                                   static_cast<uint32_t>(choice));
  }
  // Rows of all steps so far.
  int64_t Rows() const {
    int64_t rows = 0;
    for (const FakeBackend::StepRecord& record : backend_.records) rows += record.rows;
    return rows;
  }

  static constexpr uint64_t kSeed = 77;

  KvDtype dtype_ = KvDtype::kF16;  // Of the pages that Build makes.

  FakeBackend backend_;
  CopyingBackend copying_{backend_};
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<EngineHarness> harness_;
};

}  // namespace renga
