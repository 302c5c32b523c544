// Admission in the engine: who is refused because the first token would come too late,
// what a snapshot tells those who predict, and what the pool's pressure does.

#include <thread>

#include "tests/engine/engine_fixture.h"

namespace renga {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class EngineAdmissionTest : public EngineTest {
 protected:
  // Every step takes so long.
  void StepsTake(Duration each, std::function<void(int64_t)> more = nullptr) {
    backend_.on_step = [this, each, more = std::move(more)](int64_t step) {
      h().clock.Advance(each);
      if (more) more(step);
      return OkStatus();
    };
  }
  EngineRequest Due(std::vector<TokenId> prompt, Duration in) {
    EngineRequest request = h().Request(std::move(prompt), 4);
    request.deadline = h().clock.Now() + in;
    return request;
  }
};

// What the board says at the moment a request ends: its client may ask again at once.
class BoardReader final : public TokenSink {
 public:
  BoardReader(const SnapshotBoard& board, EngineSnapshot& seen)
      : board_(board), seen_(seen) {}
  SinkVerdict OnToken(const TokenChunk& /*chunk*/) override {
    return SinkVerdict::kContinue;
  }
  void OnDone(const Completion& /*completion*/) override { seen_ = board_.Read(); }

 private:
  const SnapshotBoard& board_;
  EngineSnapshot& seen_;
};

TEST_F(EngineAdmissionTest, ARequestThatHasEndedIsNoLoadForTheNextOneOfItsClient) {
  Build({.scheduler = {}, .pages = 8});
  EngineSnapshot seen{.running = 7, .prefill_tokens = 7};
  EngineRequest request = h().Request(PromptOf(64, 1), 1);
  request.sink = std::make_unique<BoardReader>(h().board, seen);
  ASSERT_EQ(h().queue.TryPush(request), WaitQueue::PushResult::kOk);
  h().RunToEnd();
  EXPECT_EQ(seen.running, 0);
  EXPECT_EQ(seen.prefill_tokens, 0);
  EXPECT_FALSE(seen.busy);
}

// The service has answered for what it assumed; a refusal here would come a step later.
TEST_F(EngineAdmissionTest, OnlyWhatTheServiceDidNotAssumeIsLookedAtAgain) {
  Build({.scheduler = {.policy = "continuous", .max_sequences = 2, .max_step_tokens = 64},
         .pages = 64});
  h().Submit(PromptOf(600, 1), 20);
  CollectingSink* assumed = nullptr;
  CollectingSink* more = nullptr;
  StepsTake(milliseconds(10), [&](int64_t step) {
    if (step != 3) return;
    for (const int64_t tokens :
         {int64_t{640 - kPageTokens}, int64_t{639 - kPageTokens}}) {
      EngineRequest request = h().Request(PromptOf(640, static_cast<int>(tokens)), 4);
      request.first_token_limit = milliseconds(30);
      request.assumed_uncached = tokens;
      (assumed == nullptr ? assumed : more) = &h().Submit(std::move(request));
    }
    h().queue.Close();
  });
  h().engine.Run();
  h().ExpectAllEnded();
  EXPECT_TRUE(assumed->completion().status.ok());
  EXPECT_EQ(more->completion().status.code(), StatusCode::kResourceExhausted);
}

TEST_F(EngineAdmissionTest, ADeadlineThatCannotBeMetIsRefusedAtOnceAndSaysWhenToRetry) {
  Build({.scheduler = {.policy = "continuous", .max_sequences = 2, .max_step_tokens = 64},
         .pages = 64});
  CollectingSink& first = h().Submit(PromptOf(600, 1), 20);
  CollectingSink* late = nullptr;
  CollectingSink* in_time = nullptr;
  CollectingSink* limited = nullptr;
  StepsTake(milliseconds(10), [&](int64_t step) {
    if (step != 3) return;
    late = &h().Submit(Due(PromptOf(640, 2), milliseconds(60)));
    in_time = &h().Submit(Due(PromptOf(640, 3), milliseconds(3000)));
    EngineRequest request = h().Request(PromptOf(640, 4), 4);
    request.first_token_limit = milliseconds(30);
    limited = &h().Submit(std::move(request));
    h().queue.Close();
  });
  h().engine.Run();
  h().ExpectAllEnded();
  for (const CollectingSink* sink : {late, limited}) {
    EXPECT_EQ(sink->completion().status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(sink->completion().status.message(),
                testing::AllOf(HasSubstr("the first token is predicted in "),
                               HasSubstr(" ms, after the deadline")));
    ASSERT_TRUE(sink->completion().status.retry_after().has_value());
    EXPECT_GE(*sink->completion().status.retry_after(), milliseconds(1));
    EXPECT_EQ(sink->starts(), 0);
  }
  ExpectAnswer(first, PromptOf(600, 1), 20);
  ExpectAnswer(*in_time, PromptOf(640, 3), 4);
}

TEST_F(EngineAdmissionTest, WhatIsCachedCountsAsComputed) {
  Build({.scheduler = {.policy = "serial", .max_sequences = 2, .max_step_tokens = 64},
         .pages = 64});
  h().Submit(PromptOf(600, 1), 2);
  CollectingSink* known = nullptr;
  CollectingSink* unknown = nullptr;
  StepsTake(milliseconds(10), [&](int64_t step) {
    if (step != 11) return;  // The prompt is computed: its whole pages are known.
    known = &h().Submit(Due(PromptOf(600, 1), milliseconds(75)));
    unknown = &h().Submit(Due(PromptOf(600, 2), milliseconds(75)));
    h().queue.Close();
  });
  h().engine.Run();
  h().ExpectAllEnded();
  EXPECT_TRUE(known->completion().status.ok()) << known->completion().status.ToString();
  EXPECT_EQ(unknown->completion().status.code(), StatusCode::kResourceExhausted);
}

TEST_F(EngineAdmissionTest, NothingIsRefusedWhileNothingWasMeasuredNorTheServersOwn) {
  Build({.scheduler = {.policy = "continuous", .max_sequences = 4, .max_step_tokens = 64},
         .pages = 64});
  CollectingSink& unmeasured = h().Submit(Due(PromptOf(600, 1), milliseconds(1)));
  CollectingSink* own = nullptr;
  StepsTake(milliseconds(10), [&](int64_t step) {
    if (step != 1) return;
    EngineRequest request = h().Request(PromptOf(600, 2), 4);
    request.first_token_limit = milliseconds(1);
    request.counted = false;
    own = &h().Submit(std::move(request));
    h().queue.Close();
  });
  h().engine.Run();
  h().ExpectAllEnded();
  EXPECT_EQ(unmeasured.completion().status.code(), StatusCode::kDeadlineExceeded);
  ExpectAnswer(*own, PromptOf(600, 2), 4);
  EXPECT_EQ(h().Metric("renga_request_queue_seconds_count"), 1) << "not its own one";
  EXPECT_EQ(h().Metric("renga_generated_tokens_total"), 0);
  EXPECT_EQ(h().Metric("renga_prompt_tokens_total"), 0);
}

TEST_F(EngineAdmissionTest, APreemptedRequestIsNeverRefused) {
  Build({.scheduler = {.policy = "continuous", .max_sequences = 4}, .pages = 4});
  h().Submit(PromptOf(60, 1), 130);
  CollectingSink& victim = h().Submit(Due(PromptOf(60, 2), milliseconds(100000)));
  EngineRequest request = Due(PromptOf(60, 3), milliseconds(100000));
  request.max_tokens = 100;
  request.first_token_limit = milliseconds(500);
  CollectingSink& limited = h().Submit(std::move(request));
  StepsTake(milliseconds(10));
  h().RunToEnd();
  EXPECT_GT(h().Metric("renga_preemptions_total"), 0);
  EXPECT_TRUE(victim.completion().status.ok());
  EXPECT_TRUE(limited.completion().status.ok());
}

TEST_F(EngineAdmissionTest, TheSnapshotTellsWhatAPredictionNeeds) {
  Build({.scheduler = {.policy = "continuous",
                       .max_sequences = 4,
                       .prefill_slice_tokens = 32,
                       .max_step_tokens = 64},
         .pages = 64});
  EXPECT_EQ(h().board.Read().full_rows, 0) << "nothing was measured";
  h().Submit(PromptOf(20, 1), 40);
  h().Submit(PromptOf(20, 2), 40);
  EngineSnapshot seen;
  StepsTake(milliseconds(10), [&](int64_t step) {
    if (step == 20) h().Submit(PromptOf(300, 3), 4);
    if (step == 22) seen = h().board.Read();  // After its first slice.
    if (step == 23) h().queue.Close();
  });
  h().engine.Run();
  h().ExpectAllEnded();
  EXPECT_EQ(seen.decoding, 2);
  EXPECT_EQ(seen.running, 3);
  EXPECT_EQ(seen.prefill_tokens, 300 - 32);
  EXPECT_EQ(seen.slice_rows, 32);
  EXPECT_EQ(seen.full_rows, 64);
  EXPECT_GT(seen.decode_step, Duration{});
  EXPECT_GE(seen.slice_step, seen.decode_step);
  EXPECT_GE(seen.full_step, seen.decode_step);
  EXPECT_NEAR(seen.busy_share, 1.0, 0.01) << "the clock moves inside steps alone";
  EXPECT_GT(h().board.Read().residence, milliseconds(100));
}

TEST_F(EngineAdmissionTest, PredictedAgainstMeasuredStepsAreExported) {
  Build({.scheduler = {}, .pages = 64});
  h().Submit(PromptOf(20, 1), 60);
  StepsTake(milliseconds(10));
  h().RunToEnd();
  const double count = h().Metric("renga_step_prediction_ratio_count");
  EXPECT_EQ(count, 59) << "all but the first, which nothing predicts";
  EXPECT_NEAR(h().Metric("renga_step_prediction_ratio_sum") / count, 1.0, 0.1);
  EXPECT_EQ(h().Metric("renga_scheduler_overhead_seconds_count"), 59);
}

TEST_F(EngineAdmissionTest, AStepBesideRunningStreamsIsCutInMilliseconds) {
  Build({.scheduler = {.policy = "continuous",
                       .max_decode_stall_ms = 20,
                       .max_step_tokens = 512},
         .pages = 64},
        4096);
  h().Submit(PromptOf(400, 1), 100);
  std::vector<Duration> gaps;
  backend_.on_step = [&](int64_t step) {
    // 1 ms, and 0.1 ms for each row.
    const int32_t rows = backend_.records.back().rows;
    const Duration took = milliseconds(1) + std::chrono::microseconds(100) * rows;
    h().clock.Advance(took);
    if (step > 31 && rows > 1) gaps.push_back(took);
    if (step == 20) h().Submit(PromptOf(300, 2), 2);  // Teaches it what rows cost.
    if (step == 31) h().Submit(PromptOf(2000, 3), 2);
    if (step == 60) h().queue.Close();
    return OkStatus();
  };
  h().engine.Run();
  h().ExpectAllEnded();
  ASSERT_GT(gaps.size(), 5u);
  for (const Duration gap : gaps) {
    EXPECT_LE(gap, milliseconds(30));
    EXPECT_GE(gap, milliseconds(1));
  }
}

TEST_F(EngineAdmissionTest, PressureHalvesTheLargestBatchAndTheGaugeShowsIt) {
  Build({.scheduler = {.max_batch = 32}, .pages = 4});
  EXPECT_EQ(h().Metric("renga_max_batch"), 32);
  h().Submit(PromptOf(60, 1), 100);
  h().Submit(PromptOf(60, 2), 100);
  double least = 32;
  StepsTake(milliseconds(1),
            [&](int64_t) { least = std::min(least, h().Metric("renga_max_batch")); });
  h().RunToEnd();
  EXPECT_GT(h().Metric("renga_preemptions_total"), 0);
  EXPECT_LE(least, 16);
}

TEST_F(EngineAdmissionTest, WaitingRequestsAreShownByTheirPriority) {
  Build({.scheduler = {.policy = "serial"}, .pages = 32});
  h().Submit(PromptOf(10, 1), 20);
  for (int i = 0; i < 3; ++i) {
    EngineRequest request = h().Request(PromptOf(10, 2), 2);
    request.priority = i < 2 ? Priority::kLow : Priority::kHigh;
    h().Submit(std::move(request));
  }
  std::string text;
  InStep(5, [&] { text = h().metrics.Serialize(); });
  h().RunToEnd();
  const auto line = [&](const std::string& priority) {
    const size_t at = text.find("priority=\"" + priority + "\"} ");
    return at == std::string::npos ? '?' : text[text.find("} ", at) + 2];
  };
  EXPECT_EQ(line("low"), '2');
  EXPECT_EQ(line("high"), '1');
  EXPECT_EQ(line("normal"), '0');
}

TEST_F(EngineAdmissionTest, RequestsAreBookedFromTheirMailToTheirEnd) {
  Build({.scheduler = {}, .pages = 32});
  const MemoryLedger& ledger = MemoryLedger::Process();
  const MemoryLedger::Account before = ledger.Read(MemoryPurpose::kRequests);
  h().Submit(PromptOf(100, 1), 50);
  h().Submit(Drawing(PromptOf(100, 2), 50, 4));
  MemoryLedger::Account inside;
  InStep(5, [&] { inside = ledger.Read(MemoryPurpose::kRequests); });
  h().RunToEnd();
  EXPECT_EQ(inside.buffers - before.buffers, 2);
  EXPECT_GE(inside.bytes - before.bytes, 5 * 150 * 4);
  const MemoryLedger::Account after = ledger.Read(MemoryPurpose::kRequests);
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_EQ(after.buffers, before.buffers);
}

}  // namespace
}  // namespace renga
