// A step allocates nothing once its sequences run.

#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"
#include "tests/fakes/fake_backend.h"
#include "tests/models/allocation_meter.h"

namespace renga {
namespace {

// The test itself may not allocate either: tokens are not kept.
class SilentSink final : public TokenSink {
 public:
  SinkVerdict OnToken(const TokenChunk&) override { return SinkVerdict::kContinue; }
  void OnDone(const Completion&) override {}
};

TEST(AllocationTest, SteadyDecodeAllocatesNothing) {
  const EngineOptions options{.scheduler = {}, .pages = 64};
  FakeBackend backend;
  backend.keep_records = false;
  const auto transformer = WeightlessTransformer(backend, 1024, options);
  EngineHarness harness(options, *transformer);
  for (int i = 0; i < 7; ++i) {
    EngineRequest request = harness.Request(PromptOf(20 + i, i), 200);
    if (i == 1) request.n = 3;
    if (i == 2) request.logprobs = 5;
    if (i == 3) request.sampling.presence_penalty = 0.5f;
    if (i == 4) request.use_prefix_cache = false;
    if (i == 5) request.min_tokens = 100;
    request.sink = std::make_unique<SilentSink>();
    ASSERT_EQ(harness.queue.TryPush(request), WaitQueue::PushResult::kOk);
  }
  int64_t before = -1, after = -1;
  backend.on_step = [&](int64_t step) {
    if (step == 10) before = test::AllocationCount();
    if (step == 190) after = test::AllocationCount();  // Each took new pages meanwhile.
    return OkStatus();
  };
  harness.RunToEnd();
  if (before == 0) GTEST_SKIP() << "a sanitizer has its own operator new";
  EXPECT_EQ(after - before, 0);
}

}  // namespace
}  // namespace renga
