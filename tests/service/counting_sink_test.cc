#include "service/counting_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/collecting_sink.h"
#include "tests/fakes/manual_clock.h"

namespace renga {
namespace {

using testing::HasSubstr;

std::string Total(const std::string& outcome, int count) {
  return "renga_requests_total{model=\"tiny\",outcome=\"" + outcome + "\"} " +
         std::to_string(count) + '\n';
}

TEST(CountingSinkTest, EachWayToEndIsOneOutcome) {
  struct Case {
    Status status;
    FinishReason reason;
    std::string outcome;
  };
  const Case cases[] = {
      {OkStatus(), FinishReason::kStop, "ok"},
      {OkStatus(), FinishReason::kLength, "ok"},
      {OkStatus(), FinishReason::kCancelled, "cancelled"},
      {Cancelled("x"), FinishReason::kCancelled, "cancelled"},
      {DeadlineExceeded("x"), FinishReason::kCancelled, "deadline"},
      {Internal("x"), FinishReason::kNone, "error"},
      {Unavailable("x"), FinishReason::kCancelled, "error"},
      {ResourceExhausted("x"), FinishReason::kNone, "rejected"},
  };
  for (const Case& c : cases) {
    ServerMetrics metrics("tiny", "cpu");
    ManualClock clock;
    CollectingSink client;
    CountingSink sink(client, metrics, clock, true);
    Completion completion;
    completion.status = c.status;
    completion.finish_reason = c.reason;
    sink.OnDone(completion);
    const std::string text = metrics.Serialize();
    for (const char* outcome : {"ok", "error", "cancelled", "deadline", "rejected"}) {
      EXPECT_THAT(text, HasSubstr(Total(outcome, c.outcome == outcome ? 1 : 0)));
    }
    EXPECT_EQ(client.completion().status, c.status);
  }
}

TEST(CountingSinkTest, ACancelAtTheDeadlineIsTheDeadline) {
  struct Case {
    std::chrono::milliseconds before;
    std::string outcome;
  };
  for (const Case& c : {Case{std::chrono::milliseconds(-5), "deadline"},
                        Case{std::chrono::milliseconds(0), "deadline"},
                        Case{std::chrono::milliseconds(5), "deadline"},
                        Case{std::chrono::milliseconds(500), "cancelled"}}) {
    ServerMetrics metrics("tiny", "cpu");
    ManualClock clock;
    CollectingSink client;
    CountingSink sink(client, metrics, clock, true, clock.Now() + c.before);
    Completion completion;
    completion.status = Cancelled("x");
    sink.OnDone(completion);
    EXPECT_THAT(metrics.Serialize(), HasSubstr(Total(c.outcome, 1)));
  }
}

TEST(CountingSinkTest, ARefusalCountsItsReasonAndReachesTheClient) {
  ServerMetrics metrics("tiny", "cpu");
  ManualClock clock;
  CollectingSink client;
  CountingSink sink(client, metrics, clock, true);
  sink.Refuse(RejectReason::kQueueFull, ResourceExhausted("full"));
  const std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr(Total("rejected", 1)));
  EXPECT_THAT(
      text, HasSubstr("renga_rejections_total{model=\"tiny\",reason=\"queue_full\"} 1"));
  EXPECT_EQ(client.completion().status.code(), StatusCode::kResourceExhausted);
}

TEST(CountingSinkTest, ARefusalOfTheEngineIsOneRejectionForItsDeadline) {
  ServerMetrics metrics("tiny", "cpu");
  ManualClock clock;
  CollectingSink client;
  CountingSink sink(client, metrics, clock, true);
  Completion completion;
  completion.status =
      ResourceExhausted("too late").WithRetryAfter(std::chrono::seconds(2));
  sink.OnDone(completion);
  const std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr(Total("rejected", 1)));
  EXPECT_THAT(text, HasSubstr("renga_rejections_total{model=\"tiny\","
                              "reason=\"deadline_unmeetable\"} 1\n"));
  EXPECT_EQ(client.completion().status.retry_after(), std::chrono::seconds(2));
}

TEST(CountingSinkTest, EndsOfChoicesPassThrough) {
  ServerMetrics metrics("tiny", "cpu");
  ManualClock clock;
  CollectingSink client;
  CountingSink sink(client, metrics, clock, true);
  sink.OnChoiceEnd({.choice = 3, .finish_reason = FinishReason::kLength});
  ASSERT_EQ(client.ends().size(), 1u);
  EXPECT_EQ(client.ends()[0].choice, 3);
}

TEST(CountingSinkTest, TheDurationRunsFromArrivalToTheEnd) {
  ServerMetrics metrics("tiny", "cpu");
  ManualClock clock;
  CollectingSink client;
  CountingSink sink(client, metrics, clock, true);
  clock.Advance(std::chrono::seconds(3));
  sink.OnDone({});
  EXPECT_THAT(metrics.Serialize(),
              HasSubstr("renga_request_duration_seconds_sum{model=\"tiny\","
                        "outcome=\"ok\"} 3\n"));
}

TEST(CountingSinkTest, TheServersOwnRequestsLeaveNoTrace) {
  ServerMetrics metrics("tiny", "cpu");
  ManualClock clock;
  const std::string before = metrics.Serialize();
  CollectingSink one, two;
  CountingSink(one, metrics, clock, false).OnDone({});
  CountingSink(two, metrics, clock, false).Refuse(RejectReason::kTooLong, Internal("x"));
  const auto counters = [](const std::string& text) {
    return text.substr(0, text.find("# HELP process"));
  };
  EXPECT_EQ(counters(metrics.Serialize()), counters(before));
  EXPECT_TRUE(two.done());
}

}  // namespace
}  // namespace renga
