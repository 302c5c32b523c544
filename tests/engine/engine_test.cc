// Engine: how requests run and end, on a fake device whose every answer is known.

#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "tests/engine/engine_fixture.h"

namespace renga {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

// ---- How an answer ends.

TEST_F(EngineTest, MaxTokensGivesExactlySoManyTokens) {
  Build({.scheduler = {}, .pages = 16});
  CollectingSink& one = h().Submit(PromptOf(5, 1), 1);
  CollectingSink& five = h().Submit(PromptOf(70, 2), 5);
  h().RunToEnd();
  ExpectAnswer(one, PromptOf(5, 1), 1);
  ExpectAnswer(five, PromptOf(70, 2), 5);
  EXPECT_EQ(five.completion().finish_reason, FinishReason::kLength);
  EXPECT_EQ(five.completion().stop_cause, StopCause::kMaxTokens);
  EXPECT_EQ(five.completion().usage.completion_tokens, 5);
  EXPECT_EQ(five.starts(), 1);
  EXPECT_EQ(five.start().prompt_tokens, 70);
}

TEST_F(EngineTest, TheEndOfTheContextEndsTheAnswerAtExactlyTheLastPosition) {
  Build({.scheduler = {}, .pages = 16}, 128);
  EngineRequest absent = h().Request(PromptOf(100, 1), 28);
  absent.max_tokens_given = false;
  EngineRequest too_many = h().Request(PromptOf(100, 2), int64_t{1} << 62);
  CollectingSink& first = h().Submit(std::move(absent));
  CollectingSink& second = h().Submit(std::move(too_many));
  h().RunToEnd();
  for (const CollectingSink* sink : {&first, &second}) {
    EXPECT_EQ(sink->tokens().size(), 28u);
    EXPECT_EQ(sink->completion().finish_reason, FinishReason::kLength);
    EXPECT_EQ(sink->completion().stop_cause, StopCause::kContext);
  }
}

TEST_F(EngineTest, EndAndStopTokensAreCountedButNotDelivered) {
  Build({.scheduler = {}, .pages = 16});
  const std::vector<TokenId> answer = backend_.ExpectedAnswer(PromptOf(5, 1), 6);
  EngineRequest ends = h().Request(PromptOf(5, 1), 6);
  ends.end_tokens = {answer[5]};  // As exactly the last one that max_tokens allows.
  EngineRequest stops = h().Request(PromptOf(5, 1), 6);
  stops.stop_tokens = {answer[2]};
  EngineRequest at_once = h().Request(PromptOf(5, 1), 6);
  at_once.end_tokens = {answer[0]};
  CollectingSink& end_sink = h().Submit(std::move(ends));
  CollectingSink& stop_sink = h().Submit(std::move(stops));
  CollectingSink& at_once_sink = h().Submit(std::move(at_once));
  h().RunToEnd();
  EXPECT_EQ(end_sink.tokens().size(), 5u);
  EXPECT_EQ(end_sink.completion().usage.completion_tokens, 6);
  EXPECT_EQ(end_sink.completion().finish_reason, FinishReason::kStop);
  EXPECT_EQ(end_sink.completion().stop_cause, StopCause::kEndToken);
  EXPECT_EQ(stop_sink.tokens().size(), 2u);
  EXPECT_EQ(stop_sink.completion().stop_cause, StopCause::kStopToken);
  EXPECT_THAT(at_once_sink.tokens(), IsEmpty());
  EXPECT_EQ(at_once_sink.starts(), 1) << "the prompt was computed";
}

TEST_F(EngineTest, ASinkThatStopsGetsNoFurtherTokenAndNoFurtherStep) {
  Build({.scheduler = {}, .pages = 16});
  CollectingSink& sink = h().Submit(PromptOf(5, 1), 100, [](int64_t n, TokenId) {
    return n == 3 ? SinkVerdict::kStop : SinkVerdict::kContinue;
  });
  h().RunToEnd();
  EXPECT_EQ(sink.tokens().size(), 3u);
  EXPECT_EQ(sink.completion().finish_reason, FinishReason::kStop);
  EXPECT_EQ(backend_.steps(), 3);
}

TEST_F(EngineTest, AStopVerdictOnTheLastAllowedTokenIsAStop) {
  Build({.scheduler = {}, .pages = 16});
  CollectingSink& sink = h().Submit(PromptOf(5, 1), 3, [](int64_t n, TokenId) {
    return n == 3 ? SinkVerdict::kStop : SinkVerdict::kContinue;
  });
  h().RunToEnd();
  EXPECT_EQ(sink.completion().finish_reason, FinishReason::kStop);
}

// ---- What can never run.

TEST_F(EngineTest, WhatCanNeverRunIsRefusedWithBothNumbersAndBlocksNobody) {
  Build({.scheduler = {}, .pages = 8}, 600);
  CollectingSink& too_long = h().Submit(PromptOf(600, 1), 1);
  CollectingSink& too_large = h().Submit(PromptOf(513, 2), 1);
  EngineRequest foreign = h().Request({5, 1000}, 1);
  CollectingSink& foreign_token = h().Submit(std::move(foreign));
  CollectingSink& empty = h().Submit({}, 1);
  CollectingSink& no_tokens = h().Submit({5}, -1);
  std::vector<CollectingSink*> small;
  for (int i = 0; i < 10; ++i) small.push_back(&h().Submit(PromptOf(20, i), 4));
  h().RunToEnd();
  EXPECT_EQ(too_long.completion().status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(too_long.completion().status.message(), testing::AllOf(HasSubstr("600")));
  EXPECT_EQ(too_large.completion().status.field(), "prompt");
  EXPECT_THAT(too_large.completion().status.message(),
              testing::AllOf(HasSubstr("9"), HasSubstr("8")));
  EXPECT_EQ(foreign_token.completion().status.field(), "prompt");
  EXPECT_EQ(empty.completion().status.field(), "prompt");
  EXPECT_EQ(no_tokens.completion().status.field(), "max_tokens");
  for (int i = 0; i < 10; ++i)
    ExpectAnswer(*small[static_cast<size_t>(i)], PromptOf(20, i), 4);
}

TEST_F(EngineTest, ARequestThatFillsThePoolAloneEndsWithLength) {
  Build({.scheduler = {}, .pages = 2});
  CollectingSink& sink = h().Submit(PromptOf(100, 1), 500);
  h().RunToEnd();
  ExpectAnswer(sink, PromptOf(100, 1), 29);  // 128 positions, and one sampled from them.
  EXPECT_EQ(sink.completion().finish_reason, FinishReason::kLength);
  EXPECT_EQ(sink.completion().stop_cause, StopCause::kPool);
  EXPECT_TRUE(sink.completion().status.ok());
}

TEST_F(EngineTest, ALargeRequestStartsWithinTheBoundUnderSustainedSmallLoad) {
  Build({.scheduler = {.max_sequences = 4}, .pages = 8});
  int64_t small = 0, started_after = -1;
  for (int i = 0; i < 3; ++i) h().Submit(PromptOf(20, i), 6);
  CollectingSink& large = h().Submit(PromptOf(7 * 64, 50), 4);
  backend_.on_step = [&](int64_t step) {
    if (started_after < 0 && large.starts() > 0) started_after = small;
    if (step < 300) {
      ++small;
      h().Submit(PromptOf(20, static_cast<int>(step)), 6);
    }
    if (step == 300) h().queue.Close();
    h().clock.Advance(milliseconds(10));
    return OkStatus();
  };
  h().engine.Run();
  h().ExpectAllEnded();
  ExpectAnswer(large, PromptOf(7 * 64, 50), 4);
  ASSERT_GE(started_after, 0) << "it started only when the small ones had ceased";
  EXPECT_LE(started_after, 40);
}

// ---- Memory.

TEST_F(EngineTest, PagesThatAPromptInPrefillWillNeedAreNotPromisedTwice) {
  Build({.scheduler = {.policy = "continuous", .max_sequences = 8, .max_step_tokens = 64},
         .pages = 8});
  CollectingSink& first = h().Submit(PromptOf(6 * 64, 1), 40);
  CollectingSink* second = nullptr;
  InStep(1, [&] {
    second = &h().Submit(PromptOf(3 * 64, 2), 2);
    h().queue.Close();
  });
  h().engine.Run();
  h().ExpectAllEnded();
  EXPECT_EQ(h().Metric("renga_preemptions_total"), 0);
  ExpectAnswer(first, PromptOf(6 * 64, 1), 40);
  ExpectAnswer(*second, PromptOf(3 * 64, 2), 2);
}

TEST_F(EngineTest, APoolUnderPressurePreemptsAndChangesNoAnswer) {
  Build({.scheduler = {}, .pages = 10});
  std::vector<std::pair<CollectingSink*, std::vector<TokenId>>> all;
  for (int i = 0; i < 6; ++i) {
    const std::vector<TokenId> prompt = PromptOf(30 + 25 * i, i);
    all.emplace_back(&h().Submit(prompt, 100 + 10 * i), prompt);
  }
  h().RunToEnd();
  EXPECT_GT(h().Metric("renga_preemptions_total"), 0);
  for (int i = 0; i < 6; ++i) {
    ExpectAnswer(*all[static_cast<size_t>(i)].first, all[static_cast<size_t>(i)].second,
                 100 + 10 * i);
  }
}

TEST_F(EngineTest, RandomLoadOnASmallPoolAnswersEverybodyAsIfAlone) {
  std::mt19937 rng(5);
  for (int round = 0; round < 30; ++round) {
    Build({.scheduler = {.max_sequences = 5, .prefill_slice_tokens = 17}, .pages = 6});
    struct Sent {
      CollectingSink* sink;
      std::vector<TokenId> prompt;
      int64_t tokens;
      uint64_t seed;
    };
    std::vector<Sent> all;
    for (int i = 0; i < 12; ++i) {
      const std::vector<TokenId> prompt =
          PromptOf(1 + static_cast<int64_t>(rng() % 190), i);
      EngineRequest request = h().Request(prompt, 1 + static_cast<int64_t>(rng() % 150));
      request.sampling.temperature = 1.0f;
      request.seed = rng();
      const int64_t tokens = request.max_tokens;
      const uint64_t seed = request.seed;
      all.push_back({&h().Submit(std::move(request)), prompt, tokens, seed});
    }
    h().RunToEnd();
    for (const Sent& sent : all) {
      ASSERT_THAT(sent.sink->tokens(), ElementsAreArray(backend_.ExpectedAnswer(
                                           sent.prompt, sent.tokens, 1.0f, sent.seed)));
    }
  }
}

// ---- Order inside steps.

TEST_F(EngineTest, ALongPromptIsCutSoThatRunningStreamsGetATokenInEveryStep) {
  Build({.scheduler = {.policy = "continuous", .prefill_slice_tokens = 64}, .pages = 32});
  CollectingSink& victim = h().Submit(PromptOf(4, 1), 40);
  InStep(5, [&] {
    h().Submit(PromptOf(800, 2), 2);
    h().queue.Close();
  });
  h().engine.Run();
  h().ExpectAllEnded();
  ExpectAnswer(victim, PromptOf(4, 1), 40);
  for (size_t i = 5; i + 1 < 18; ++i) {
    EXPECT_THAT(backend_.records[i].sequence_rows, ElementsAre(1, testing::Le(64)))
        << "step " << i;
  }
}

// ---- Cancels and deadlines, at every stage.

TEST_F(EngineTest, ACancelDuringPrefillEndsItAtTheNextBorder) {
  Build({.scheduler = {.max_sequences = 16, .max_step_tokens = 32}, .pages = 32});
  CollectingSink& sink = h().Submit(PromptOf(900, 1), 5);
  InStep(3, [&] { h().queue.PostCancel(RequestId{1}); });
  h().RunToEnd();
  EXPECT_EQ(backend_.steps(), 3);
  EXPECT_EQ(sink.completion().status.code(), StatusCode::kCancelled);
  EXPECT_EQ(sink.completion().finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(sink.starts(), 0);
  EXPECT_EQ(h().Metric("renga_wasted_tokens_total"), 96);
}

TEST_F(EngineTest, ACancelDuringDecodeEndsItAtTheNextBorderAndNobodyElse) {
  Build({.scheduler = {}, .pages = 32});
  CollectingSink& gone = h().Submit(PromptOf(10, 1), 500);
  CollectingSink& other = h().Submit(PromptOf(10, 2), 20);
  InStep(5, [&] { h().queue.PostCancel(RequestId{1}); });
  h().RunToEnd();
  EXPECT_EQ(gone.tokens().size(), 5u);
  EXPECT_EQ(gone.completion().status.code(), StatusCode::kCancelled);
  EXPECT_EQ(gone.completion().usage.completion_tokens, 5);
  ExpectAnswer(other, PromptOf(10, 2), 20);
}

TEST_F(EngineTest, WhatIsCancelledWhileItWaitsNeverStarts) {
  Build({.scheduler = {.policy = "serial"}, .pages = 32});
  h().Submit(PromptOf(10, 1), 5);
  CollectingSink& queued = h().Submit(PromptOf(10, 2), 5);
  InStep(2, [&] { h().queue.PostCancel(RequestId{2}); });
  h().RunToEnd();
  EXPECT_EQ(backend_.steps(), 5);
  EXPECT_EQ(queued.completion().status.code(), StatusCode::kCancelled);
  EXPECT_EQ(queued.completion().timings.queue, Duration{});
}

TEST_F(EngineTest, WhatIsCancelledInsideTheWindowNeverStarts) {
  Build({.scheduler = {}, .pages = 32});
  CollectingSink& running = h().Submit(PromptOf(10, 1), 20);
  CollectingSink* held = nullptr;
  backend_.on_step = [&](int64_t step) {
    if (step == 2) held = &h().Submit(PromptOf(10, 2), 5);  // The clock stands still.
    if (step == 6) h().queue.PostCancel(RequestId{2});
    if (step == 10) h().queue.Close();
    return OkStatus();
  };
  h().engine.Run();
  h().ExpectAllEnded();
  EXPECT_EQ(backend_.steps(), 20);
  EXPECT_EQ(held->completion().status.code(), StatusCode::kCancelled);
  ExpectAnswer(running, PromptOf(10, 1), 20);
}

TEST_F(EngineTest, APassedDeadlineEndsARequestAtEveryStage) {
  Build({.scheduler = {.policy = "serial"}, .pages = 32});
  EngineRequest decoding = h().Request(PromptOf(10, 1), 500);
  decoding.deadline = h().clock.Now() + milliseconds(50);
  EngineRequest waiting = h().Request(PromptOf(10, 2), 500);
  waiting.deadline = h().clock.Now() + milliseconds(30);
  EngineRequest late = h().Request(PromptOf(10, 3), 500);
  late.deadline = h().clock.Now();
  CollectingSink& decoding_sink = h().Submit(std::move(decoding));
  CollectingSink& waiting_sink = h().Submit(std::move(waiting));
  CollectingSink& late_sink = h().Submit(std::move(late));
  backend_.on_step = [&](int64_t) {
    h().clock.Advance(milliseconds(10));
    return OkStatus();
  };
  h().RunToEnd();
  EXPECT_EQ(backend_.steps(), 5);
  for (const CollectingSink* sink : {&decoding_sink, &waiting_sink, &late_sink}) {
    EXPECT_EQ(sink->completion().status.code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(decoding_sink.tokens().size(), 5u);
  EXPECT_EQ(h().Metric("renga_generated_tokens_total"), 5);
}

// ---- Slow readers.

TEST_F(EngineTest, APausedSequenceRestsUntilItIsResumedAndNobodyElseDoes) {
  Build({.scheduler = {}, .pages = 32});
  CollectingSink& slow = h().Submit(PromptOf(10, 1), 10, [](int64_t n, TokenId) {
    return n == 4 ? SinkVerdict::kPause : SinkVerdict::kContinue;
  });
  CollectingSink& other = h().Submit(PromptOf(10, 2), 30);
  size_t tokens_while_paused = 0;
  InStep(20, [&] {
    tokens_while_paused = slow.tokens().size();
    h().queue.PostResume(RequestId{1});
    h().queue.PostResume(RequestId{77});  // Unknown: no effect.
  });
  h().RunToEnd();
  EXPECT_EQ(tokens_while_paused, 4u);
  ExpectAnswer(slow, PromptOf(10, 1), 10);
  ExpectAnswer(other, PromptOf(10, 2), 30);
}

TEST_F(EngineTest, AStalledReaderGivesItsPagesToOthersAndGoesOnLater) {
  Build({.scheduler = {}, .pages = 4});
  CollectingSink& slow = h().Submit(PromptOf(150, 1), 40, [](int64_t n, TokenId) {
    return n == 2 ? SinkVerdict::kPause : SinkVerdict::kContinue;
  });
  CollectingSink* other = nullptr;
  backend_.on_step = [&](int64_t step) {
    if (step == 1) other = &h().Submit(PromptOf(200, 2), 50);
    h().clock.Advance(milliseconds(60));
    if (step == 20) h().queue.PostResume(RequestId{1});
    return OkStatus();
  };
  std::thread closer([&] {
    slow.WaitDone();
    h().queue.Close();
  });
  h().engine.Run();
  closer.join();
  h().ExpectAllEnded();
  ExpectAnswer(*other, PromptOf(200, 2), 50);
  ExpectAnswer(slow, PromptOf(150, 1), 40);
}

TEST_F(EngineTest, StalledReadersHoldNoRunningPlace) {
  Build({.scheduler = {.max_sequences = 2}, .pages = 32});
  const auto pause = [](int64_t n, TokenId) {
    return n == 1 ? SinkVerdict::kPause : SinkVerdict::kContinue;
  };
  h().Submit(PromptOf(10, 1), 5, pause);
  h().Submit(PromptOf(10, 2), 5, pause);
  CollectingSink& other = h().Submit(PromptOf(10, 3), 5, [&](int64_t n, TokenId) {
    if (n == 5) {
      h().queue.PostResume(RequestId{1});
      h().queue.PostCancel(RequestId{2});
    }
    return SinkVerdict::kContinue;
  });
  h().RunToEnd();
  ExpectAnswer(other, PromptOf(10, 3), 5);
}

// ---- Failures.

TEST_F(EngineTest, LogitsThatAreNotFiniteFailTheirRequestAlone) {
  Build({.scheduler = {}, .pages = 32});
  CollectingSink& bad = h().Submit({FakeBackend::kPoisonToken, 5, 6}, 5);
  CollectingSink& good = h().Submit(PromptOf(10, 2), 5);
  h().RunToEnd();
  EXPECT_EQ(bad.completion().status.code(), StatusCode::kInternal);
  EXPECT_EQ(bad.completion().finish_reason, FinishReason::kNone);
  EXPECT_THAT(bad.tokens(), IsEmpty());
  ExpectAnswer(good, PromptOf(10, 2), 5);
}

TEST_F(EngineTest, AFailedStepFailsTheRequestsOfThatStepAndTheNextOnesRun) {
  Build({.scheduler = {.policy = "serial"}, .pages = 32});
  CollectingSink& hit = h().Submit(PromptOf(10, 1), 5);
  CollectingSink& next = h().Submit(PromptOf(10, 2), 5);
  backend_.on_step = [](int64_t step) {
    return step == 3 ? Internal("lost a launch at /dev/x") : OkStatus();
  };
  h().RunToEnd();
  EXPECT_EQ(hit.completion().status.code(), StatusCode::kInternal);
  EXPECT_THAT(hit.completion().status.message(), testing::Not(HasSubstr("/dev")));
  EXPECT_EQ(hit.completion().usage.completion_tokens, 2);
  ExpectAnswer(next, PromptOf(10, 2), 5);
}

TEST_F(EngineTest, ADeviceThatFailsAgainAndAgainEndsEverythingAsUnavailable) {
  Build({.scheduler = {.policy = "serial"}, .pages = 32});
  std::vector<CollectingSink*> sinks;
  for (int i = 0; i < 6; ++i) sinks.push_back(&h().Submit(PromptOf(10, i), 5));
  backend_.on_step = [](int64_t) { return Internal("gone"); };
  h().engine.Run();  // Returns though nobody closed the queue.
  h().ExpectAllEnded();
  EXPECT_EQ(backend_.steps(), 3);
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(sinks[i]->completion().status.code(),
              i < 3 ? StatusCode::kInternal : StatusCode::kUnavailable);
  }
  EngineRequest late = h().Request(PromptOf(1, 1), 1);
  EXPECT_EQ(h().queue.TryPush(late), WaitQueue::PushResult::kClosed);
}

TEST_F(EngineTest, ALostDeviceEndsEverythingAtItsFirstFailure) {
  Build({.scheduler = {.policy = "serial"}, .pages = 32});
  std::vector<CollectingSink*> sinks;
  for (int i = 0; i < 6; ++i) sinks.push_back(&h().Submit(PromptOf(10, i), 5));
  backend_.on_step = [](int64_t step) {
    return step == 2 ? Unavailable("lost") : OkStatus();
  };
  h().engine.Run();  // Returns though nobody closed the queue.
  h().ExpectAllEnded();
  EXPECT_EQ(backend_.steps(), 2);
  for (const CollectingSink* sink : sinks) {
    EXPECT_EQ(sink->completion().status.code(), StatusCode::kUnavailable);
  }
  EngineRequest late = h().Request(PromptOf(1, 1), 1);
  EXPECT_EQ(h().queue.TryPush(late), WaitQueue::PushResult::kClosed);
}

TEST_F(EngineTest, StopEndsWorkAtEveryStageWithItsStatus) {
  Build({.scheduler = {.max_sequences = 2, .max_step_tokens = 16}, .pages = 32});
  std::vector<CollectingSink*> sinks;
  sinks.push_back(&h().Submit(PromptOf(5, 1), 500));    // Decodes.
  sinks.push_back(&h().Submit(PromptOf(900, 2), 500));  // In prefill.
  sinks.push_back(&h().Submit(PromptOf(5, 3), 500));    // Waits for a place.
  InStep(4, [&] {
    sinks.push_back(&h().Submit(PromptOf(5, 4), 500));  // Still in the mailbox.
    h().engine.Stop(Unavailable("drained"));
  });
  h().engine.Run();
  h().ExpectAllEnded();
  EXPECT_EQ(backend_.steps(), 4);
  for (const CollectingSink* sink : sinks) {
    EXPECT_EQ(sink->completion().status, Unavailable("drained"));
    EXPECT_EQ(sink->completion().finish_reason, FinishReason::kCancelled);
  }
}

// ---- What others see.

TEST_F(EngineTest, TimingsTellWhereTheTimeOfARequestWent) {
  Build({.scheduler = {.policy = "serial", .max_sequences = 4, .max_step_tokens = 4},
         .pages = 32});
  h().Submit(PromptOf(4, 1), 2);
  CollectingSink& second = h().Submit(PromptOf(8, 2), 3);
  backend_.on_step = [&](int64_t step) {
    h().clock.Advance(milliseconds(step == 6 ? 70 : 10));
    return OkStatus();
  };
  h().RunToEnd();
  const RequestTimings timings = second.completion().timings;
  EXPECT_EQ(timings.queue, milliseconds(20));
  EXPECT_EQ(timings.prefill, milliseconds(20));
  EXPECT_EQ(timings.decode, milliseconds(80));
  EXPECT_EQ(timings.max_gap, milliseconds(70));
  EXPECT_EQ(second.start().queue, milliseconds(20));
  EXPECT_EQ(h().Metric("renga_request_queue_seconds_count"), 2);
  EXPECT_EQ(h().Metric("renga_engine_steps_total"), 6);
}

TEST_F(EngineTest, ACancelIsFreedWithinTheStepInWhichItCame) {
  Build({.scheduler = {}, .pages = 32});
  h().Submit(PromptOf(10, 1), 500);
  backend_.on_step = [&](int64_t step) {
    h().clock.Advance(milliseconds(10));
    if (step == 5) h().queue.PostCancel(RequestId{1});
    return OkStatus();
  };
  h().RunToEnd();
  EXPECT_EQ(backend_.steps(), 5);
  EXPECT_EQ(h().Metric("renga_cancel_latency_seconds_count"), 1);
  EXPECT_NEAR(h().Metric("renga_cancel_latency_seconds_sum"), 0.010, 1e-9);
}

TEST_F(EngineTest, TheSnapshotShowsTheMeasuredStepAndTheLoad) {
  Build({.scheduler = {}, .pages = 32});
  EngineSnapshot inside;
  int64_t booked = 0;
  h().Submit(PromptOf(100, 1), 30);
  backend_.on_step = [&](int64_t step) {
    if (step == 10) {
      inside = h().board.Read();
      booked = MemoryLedger::Process().Read(MemoryPurpose::kRequests).bytes;
    }
    h().clock.Advance(milliseconds(10));
    return OkStatus();
  };
  h().RunToEnd();
  EXPECT_TRUE(inside.busy);
  EXPECT_EQ(inside.running, 1);
  EXPECT_EQ(inside.steps, 9);
  EXPECT_EQ(inside.pages_total, 32);
  EXPECT_EQ(inside.pages_free, 30);
  EXPECT_EQ(inside.decoding, 1);
  EXPECT_EQ(inside.decode_step, milliseconds(10));
  EXPECT_GT(booked, 0);
  EXPECT_EQ(inside.request_bytes, booked);
  EXPECT_EQ(h().board.Read().request_bytes, 0);
}

TEST_F(EngineTest, TheFirstStepAfterAnIdleTimeIsAlreadySeenAsWork) {
  Build({.scheduler = {}, .pages = 32});
  EngineSnapshot inside;
  h().Submit(PromptOf(10, 1), 1);
  h().clock.Advance(milliseconds(5000));
  backend_.on_step = [&](int64_t) {
    inside = h().board.Read();
    return OkStatus();
  };
  h().RunToEnd();
  EXPECT_TRUE(inside.busy);
  EXPECT_EQ(inside.last_progress, h().clock.Now());
}

TEST_F(EngineTest, ASequenceThatWaitsForItsReaderIsNoWork) {
  Build({.scheduler = {}, .pages = 32});
  h().Submit(PromptOf(10, 1), 5, [](int64_t n, TokenId) {
    return n == 2 ? SinkVerdict::kPause : SinkVerdict::kContinue;
  });
  std::thread engine([&] { h().engine.Run(); });
  EngineSnapshot seen;
  while (seen.running != 1 || seen.busy) seen = h().board.Read();
  h().queue.PostResume(RequestId{1});
  h().queue.Close();
  engine.join();
  h().ExpectAllEnded();
}

}  // namespace
}  // namespace renga
