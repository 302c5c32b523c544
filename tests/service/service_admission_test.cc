// Room, time and the way in: what is refused, when and with which delay.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/service/service_fixture.h"

namespace renga {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class ServiceAdmissionTest : public ServiceFixture {};

TEST_F(ServiceAdmissionTest, AFullQueueIsRefusedWithADelay) {
  Make(6, {.max_requests = 1, .max_tokens = 1000});
  CollectingSink first, second;
  service_->Generate(Request("a"), first);
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  service_->Generate(Request("b"), second);
  second.WaitDone();
  const Status status = second.completion().status;
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_GE(status.retry_after().value_or(Duration(0)), milliseconds(100));
  EXPECT_EQ(Rejections("queue_full"), 1);
  WaitQueue::Mail mail = queue_->Take(TimePoint{});
  ASSERT_EQ(mail.requests.size(), 1u);
  End(mail.requests[0]);
}

// What the queue cannot take is not encoded first, and does not wait for those that are.
TEST_F(ServiceAdmissionTest, AFullQueueAnswersAtOnceWhileThePoolIsBusy) {
  for (const WaitQueue::Limits& limits :
       {WaitQueue::Limits{.max_requests = 1, .max_tokens = 1000},
        WaitQueue::Limits{.max_requests = 10, .max_tokens = 5}}) {
    options_.pool.threads = 1;
    Make(6, limits);
    Gate gate;
    tokenizer_.gate = [&] { gate.Wait(); };
    CollectingSink encoding, refused;
    service_->Generate(Request("a"), encoding);
    Wait(5);
    service_->Generate(Request("b"), refused);
    ASSERT_TRUE(refused.done()) << "it waits for the pool";
    EXPECT_EQ(refused.completion().status.code(), StatusCode::kResourceExhausted);
    EXPECT_TRUE(refused.completion().status.retry_after());
    gate.Open();
    encoding.WaitDone();  // The queue has become full meanwhile.
    EXPECT_EQ(encoding.completion().status.code(), StatusCode::kResourceExhausted);
    service_.reset();
  }
  EXPECT_EQ(Rejections("queue_full"), 4);
  EXPECT_EQ(AllOutcomes(), 4);
}

// The wait queue is empty then: the text must not speak of that.
TEST_F(ServiceAdmissionTest, WherePromptsWaitToBeEncodedTheRefusalSaysSo) {
  options_.pool.threads = 1;
  options_.pool.max_jobs = 1;
  Make();
  Gate gate;
  Gate encoding;
  tokenizer_.gate = [&] {
    encoding.Open();
    gate.Wait();
  };
  CollectingSink first, second, third;
  service_->Generate(Request("a"), first);
  encoding.Wait();
  service_->Generate(Request("four"), second);
  service_->Generate(Request("c"), third);
  ASSERT_TRUE(third.done());
  EXPECT_EQ(third.completion().status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(third.completion().status.message(),
              HasSubstr("1 requests with 4 bytes of prompts wait to be encoded"));
  EXPECT_EQ(Rejections("queue_full"), 1);
  gate.Open();
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  for (EngineRequest& request : queue_->Take(TimePoint{}).requests) End(request);
}

// ---- The flight recorder.

TEST_F(ServiceAdmissionTest, AnAcceptedRequestHasATimelineAndARefusedOneHasNone) {
  Make(6, {.max_requests = 1, .max_tokens = 1000});
  CollectingSink first, refused;
  EngineRequest request = Submitted(Request("a"), first);
  EXPECT_GE(request.ticket.slot, 0);
  EXPECT_EQ(request.ticket.id, request.id);
  Wait(5);
  service_->Generate(Request("b"), refused);
  ASSERT_TRUE(refused.done());
  End(request);
  const std::string trace = metrics_.flight_recorder.Trace(false, clock_.Now());
  EXPECT_THAT(trace, HasSubstr("\"request 1\""));
  EXPECT_THAT(trace, HasSubstr("tokenise"));
  EXPECT_THAT(trace, HasSubstr("\"outcome\":\"stop\""));
  EXPECT_THAT(trace, testing::Not(HasSubstr("\"request 2\"")));
}

TEST_F(ServiceAdmissionTest, AFullQueueSaysWhenThereWillBeRoom) {
  Make(6, {.max_requests = 1, .max_tokens = 1000});
  board_.Publish(Measured());
  Wait(300);
  const Duration expected = Predicted(0);
  ASSERT_GT(expected, milliseconds(100));
  ASSERT_LT(expected, seconds(10));
  CollectingSink sink;
  service_->Generate(Request("b"), sink);
  ASSERT_TRUE(sink.done());
  EXPECT_EQ(sink.completion().status.retry_after(), expected);
}

// ---- Deadlines that can't be met.

TEST_F(ServiceAdmissionTest, AFirstTokenPredictedAfterTheDeadlineIsRefusedAtOnce) {
  Make();
  board_.Publish(Measured());
  Wait(200);
  const Duration predicted = Predicted(0);
  ASSERT_GT(predicted, milliseconds(500));
  tokenizer_.gate = [] { FAIL() << "encoded"; };
  GenerateRequest request = Request("a");
  request.deadline = clock_.Now() + predicted - milliseconds(1);
  CollectingSink refused;
  service_->Generate(request, refused);
  ASSERT_TRUE(refused.done()) << "not at once";
  EXPECT_EQ(refused.completion().status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(refused.completion().status.retry_after());
  EXPECT_THAT(refused.completion().status.message(), HasSubstr("deadline"));
  EXPECT_EQ(Rejections("deadline_unmeetable"), 1);
  EXPECT_EQ(AllOutcomes(), 1);

  tokenizer_.gate = nullptr;
  request.deadline = clock_.Now() + Predicted(8);  // More than its own tokens.
  CollectingSink taken;
  service_->Generate(request, taken);
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  EXPECT_FALSE(taken.done());
  WaitQueue::Mail mail = queue_->Take(TimePoint{});
  ASSERT_EQ(mail.requests.size(), 2u);
  End(mail.requests[1]);
}

TEST_F(ServiceAdmissionTest, NothingIsRefusedWhileNothingIsMeasured) {
  options_.first_token_limit = milliseconds(1);
  Make();
  Wait(5000);
  GenerateRequest request = Request("a");
  request.deadline = clock_.Now() + Duration(1);
  CollectingSink sink;
  service_->Generate(std::move(request), sink);
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  EXPECT_FALSE(sink.done());
  WaitQueue::Mail mail = queue_->Take(TimePoint{});
  ASSERT_EQ(mail.requests.size(), 2u);
  End(mail.requests[1]);
}

// What was measured in a slow moment would else hold for ever.
TEST_F(ServiceAdmissionTest, AnIdleEngineRefusesNobody) {
  options_.first_token_limit = milliseconds(1);
  Make();
  EngineSnapshot engine = Measured();
  engine.busy = false;
  board_.Publish(engine);
  GenerateRequest request = Request("a");
  request.deadline = clock_.Now() + Duration(1);
  CollectingSink sink;
  EngineRequest out = Submitted(request, sink);
  End(out);
  engine.busy = true;
  board_.Publish(engine);
  EXPECT_EQ(Refusal(request).code(), StatusCode::kResourceExhausted);
}

// The engine alone knows what is cached: the service takes as much of the last page to be
// as lately was, and all before it.
TEST_F(ServiceAdmissionTest, OfAPromptThatMayBeCachedTheLastPageCounts) {
  Make();
  EngineSnapshot engine = Measured();
  board_.Publish(engine);
  GenerateRequest request = Request(std::vector<TokenId>(300, 1));
  ASSERT_GT(Predicted(64), Predicted(32) + milliseconds(2));
  request.deadline = clock_.Now() + Predicted(64) - milliseconds(1);
  EXPECT_EQ(Refusal(request).code(), StatusCode::kResourceExhausted);
  engine.cached_share = 0.5;
  board_.Publish(engine);
  CollectingSink sink;
  EngineRequest out = Submitted(request, sink);
  End(out);
}

TEST_F(ServiceAdmissionTest, ItsOwnLengthCountsWhereNoCacheCanHaveThePrompt) {
  Make();
  board_.Publish(Measured());
  GenerateRequest request = Request(std::vector<TokenId>(300, 1));
  const Duration all = Predicted(300);
  ASSERT_GT(all, Predicted(0) + milliseconds(2));
  request.deadline = clock_.Now() + all - milliseconds(1);
  {
    CollectingSink sink;
    EngineRequest out = Submitted(request, sink);
    End(out);
  }
  GenerateRequest uncached = request;
  uncached.use_prefix_cache = false;
  EXPECT_EQ(Refusal(uncached).code(), StatusCode::kResourceExhausted);
  GenerateRequest logprobs = request;
  logprobs.prompt_logprobs = 0;
  EXPECT_EQ(Refusal(logprobs).code(), StatusCode::kResourceExhausted);
  uncached.deadline = clock_.Now() + all;
  CollectingSink sink;
  EngineRequest out = Submitted(uncached, sink);
  End(out);
  EXPECT_EQ(Rejections("deadline_unmeetable"), 2);
}

TEST_F(ServiceAdmissionTest, WhatIsUsuallyCachedOfTheQueueIsNoWait) {
  Make();
  EngineSnapshot engine = Measured();
  board_.Publish(engine);
  Wait(400);
  GenerateRequest request = Request("a");
  request.deadline = clock_.Now() + Predicted(0) - milliseconds(1);
  EXPECT_EQ(service_->GetLoad().predicted_first_token, Predicted(64));
  CollectingSink refused;
  service_->Generate(request, refused);
  EXPECT_TRUE(refused.done());
  engine.cached_share = 0.5;
  board_.Publish(engine);
  CollectingSink taken;
  service_->Generate(request, taken);
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  EXPECT_FALSE(taken.done());
  WaitQueue::Mail mail = queue_->Take(TimePoint{});
  ASSERT_EQ(mail.requests.size(), 2u);
  End(mail.requests[1]);
}

TEST_F(ServiceAdmissionTest, TheServersLimitHoldsWithoutADeadline) {
  Make();
  board_.Publish(Measured());
  Wait(200);
  const Duration predicted = Predicted(0);
  queue_->Release(1, 200);
  queue_->Take(TimePoint{});

  options_.first_token_limit = predicted - milliseconds(1);
  Make();
  Wait(200);
  CollectingSink refused;
  service_->Generate(Request("a"), refused);
  ASSERT_TRUE(refused.done());
  EXPECT_THAT(refused.completion().status.message(), HasSubstr("limit"));
  EXPECT_EQ(Rejections("deadline_unmeetable"), 1);

  queue_->Release(1, 200);
  queue_->Take(TimePoint{});
  CollectingSink sink;
  EngineRequest out = Submitted(Request("a"), sink);
  End(out);
}

TEST_F(ServiceAdmissionTest, ARefusalOfTheEngineIsCountedLikeOneOfOurs) {
  Make();
  CollectingSink sink;
  EngineRequest out = Submitted(Request("a"), sink);
  End(out, ResourceExhausted("the first token is predicted too late"));
  EXPECT_EQ(Rejections("deadline_unmeetable"), 1);
  EXPECT_EQ(Outcomes("rejected"), 1);
  EXPECT_EQ(AllOutcomes(), 1);
}

TEST_F(ServiceAdmissionTest, APastDeadlineNeverReachesTheEngine) {
  Make();
  tokenizer_.gate = [] { FAIL() << "encoded"; };
  GenerateRequest request = Request("a");
  request.deadline = clock_.Now();
  EXPECT_EQ(Refusal(request).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Outcomes("deadline"), 1);
  EXPECT_EQ(AllOutcomes(), 1);
}

TEST_F(ServiceAdmissionTest, ADeadlineThatPassesWhileEncodingCounts) {
  Make();
  tokenizer_.gate = [this] { clock_.Advance(seconds(10)); };
  GenerateRequest request = Request("a");
  request.deadline = clock_.Now() + seconds(5);
  EXPECT_EQ(Refusal(request).code(), StatusCode::kDeadlineExceeded);
}

TEST_F(ServiceAdmissionTest, NothingIsTakenBeforeReadyNorWhileDraining) {
  Make();
  service_->SetReady(false);
  EXPECT_EQ(Refusal(Request("a")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Rejections("not_ready"), 1);
  service_->SetReady(true);
  service_->StartDrain();
  EXPECT_EQ(Refusal(Request("a")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Rejections("draining"), 1);
  EXPECT_FALSE(service_->Ready());
}

TEST_F(ServiceAdmissionTest, AClosedQueueIsUnavailable) {
  Make();
  queue_->Close();
  EXPECT_EQ(Refusal(Request("a")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(AllOutcomes(), 1);
}

TEST_F(ServiceAdmissionTest, WarmUpRequestsPassBeforeReadyAndLeaveNoTrace) {
  options_.first_token_limit = milliseconds(1);
  Make();
  service_->SetReady(false);
  board_.Publish(Measured());
  Wait(400);  // Others would be refused.
  const auto requests = [&] {
    const std::string text = metrics_.Serialize();
    return text.substr(0, text.find("# HELP process"));
  };
  const std::string before = requests();
  CollectingSink sink;
  service_->GenerateForWarmUp(Request("a"), sink);
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  WaitQueue::Mail mail = queue_->Take(TimePoint{});
  ASSERT_EQ(mail.requests.size(), 2u);
  EngineRequest& out = mail.requests[1];
  EXPECT_FALSE(out.counted);
  EXPECT_FALSE(out.use_prefix_cache);
  EXPECT_EQ(out.first_token_limit, Duration::zero());
  End(out);
  EXPECT_EQ(requests(), before);
}

}  // namespace
}  // namespace renga
