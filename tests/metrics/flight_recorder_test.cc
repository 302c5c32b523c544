#include "metrics/flight_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace renga {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

constexpr TimePoint kStart{std::chrono::seconds(100)};

TimePoint At(int64_t ms) { return kStart + milliseconds(ms); }

std::string Name(uint64_t id) { return "\"request " + std::to_string(id) + "\""; }

// One request from `begin` on that gets its first token after `first_ms`.
void Play(FlightRecorder& recorder, uint64_t id, int64_t begin, int64_t first_ms,
          int64_t gap_ms = 0) {
  const FlightTicket ticket = recorder.Open(RequestId{id}, At(begin));
  recorder.Mark(ticket, FlightEvent::kFirstToken, At(begin + first_ms));
  if (gap_ms > 0) {
    recorder.Span(ticket, FlightEvent::kWorstGap, At(begin + first_ms),
                  At(begin + first_ms + gap_ms));
  }
  recorder.Close(ticket,
                 {.at = At(begin + first_ms + gap_ms), .outcome = "stop", .tokens = 2});
}

TEST(FlightRecorderTest, OffItRecordsNothingAndHoldsNothing) {
  FlightRecorder recorder({.requests = 0});
  Play(recorder, 1, 0, 10);
  recorder.AddStep({.begin = At(0), .end = At(1)}, {});
  EXPECT_FALSE(recorder.on());
  EXPECT_EQ(recorder.bytes(), 0);
  EXPECT_THAT(recorder.Trace(false, At(100)), Not(HasSubstr("\"ph\":\"X\"")));
}

TEST(FlightRecorderTest, ATimelineHasItsEventsInTheirOrder) {
  FlightRecorder recorder({.requests = 4});
  const FlightTicket ticket = recorder.Open(RequestId{7}, At(0));
  recorder.Span(ticket, FlightEvent::kTokenise, At(1), At(2), 19);
  recorder.Span(ticket, FlightEvent::kQueue, At(2), At(5));
  const FlightRecorder::Slice slice{.ticket = ticket, .rows = 19};
  recorder.AddStep(
      {.begin = At(5), .end = At(9), .rows = 21, .sequences = 3, .decoding = 2},
      {&slice, 1});
  recorder.Mark(ticket, FlightEvent::kFirstToken, At(9), 3);
  recorder.Mark(ticket, FlightEvent::kPreempted, At(12));
  recorder.Mark(ticket, FlightEvent::kReadmitted, At(14));
  recorder.Span(ticket, FlightEvent::kPaused, At(15), At(16));
  recorder.Span(ticket, FlightEvent::kWorstGap, At(9), At(15));
  recorder.Close(ticket, {.at = At(20), .outcome = "length", .tokens = 5});
  const std::string trace = recorder.Trace(false, At(50));
  size_t at = 0;
  for (const char* part :
       {"\"name\":\"step\"", "\"ts\":100005000.000,\"dur\":4000.000",
        "\"rows\":21,\"sequences\":3,\"decoding\":2",
        "\"name\":\"request 7\",\"ph\":\"X\"", "\"ts\":100000000.000,\"dur\":20000.000",
        "\"outcome\":\"length\",\"tokens\":5", "\"tokenise\"", "\"prompt_tokens\":19",
        "\"queue\"", "\"prefill\"", "\"rows\":19", "\"first token\"",
        "\"cached_tokens\":3", "\"preempted\"", "\"readmitted\"", "\"paused\"",
        "\"decode\"", "\"dur\":11000.000", "\"worst gap\""}) {
    const size_t found = trace.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << " after " << at << " of\n" << trace;
    at = found;
  }
}

TEST(FlightRecorderTest, OneUnderWayEndsNowInTheTrace) {
  FlightRecorder recorder({.requests = 4});
  recorder.Open(RequestId{1}, At(0));
  const std::string trace = recorder.Trace(false, At(30));
  EXPECT_THAT(trace, HasSubstr("\"dur\":30000.000"));
  EXPECT_THAT(trace, HasSubstr("under way"));
}

TEST(FlightRecorderTest, TheOldestOfThoseThatEndedGiveWay) {
  FlightRecorder recorder({.requests = 3});
  for (uint64_t id = 1; id <= 10; ++id) {
    Play(recorder, id, static_cast<int64_t>(id) * 10, 5);
  }
  const std::string trace = recorder.Trace(false, At(1000));
  for (uint64_t id = 1; id <= 10; ++id) {
    EXPECT_EQ(trace.find(Name(id)) != std::string::npos, id >= 8) << id;
  }
}

TEST(FlightRecorderTest, SlowOnesStayWhenManyOthersHaveCome) {
  FlightRecorder recorder({.requests = 4, .slow = milliseconds(500)});
  Play(recorder, 1, 0, 500);                                       // A late first token.
  Play(recorder, 2, 0, 10, 500);                                   // A gap.
  Play(recorder, 3, 0, 499, 499);                                  // Neither.
  const FlightTicket waited = recorder.Open(RequestId{4}, At(0));  // No token at all.
  recorder.Close(waited, {.at = At(600), .outcome = "DEADLINE_EXCEEDED"});
  for (uint64_t id = 5; id <= 40; ++id) Play(recorder, id, 1000, 5);
  const std::string trace = recorder.Trace(false, At(5000));
  for (const uint64_t id : {1, 2, 4, 40}) EXPECT_THAT(trace, HasSubstr(Name(id)));
  EXPECT_THAT(trace, Not(HasSubstr(Name(3))));
  const std::string slow = recorder.Trace(true, At(5000));
  for (const uint64_t id : {1, 2, 4}) EXPECT_THAT(slow, HasSubstr(Name(id)));
  EXPECT_THAT(slow, Not(HasSubstr(Name(40))));
}

TEST(FlightRecorderTest, OneThatHasWaitedLongIsSlowBeforeItsEnd) {
  FlightRecorder recorder({.requests = 4, .slow = milliseconds(500)});
  recorder.Open(RequestId{1}, At(0));
  EXPECT_THAT(recorder.Trace(true, At(499)), Not(HasSubstr(Name(1))));
  EXPECT_THAT(recorder.Trace(true, At(500)), HasSubstr(Name(1)));
}

TEST(FlightRecorderTest, SlowOnesGiveWayToLaterSlowOnes) {
  FlightRecorder recorder({.requests = 1, .slow = milliseconds(1)});
  for (uint64_t id = 1; id <= 100; ++id) {
    Play(recorder, id, static_cast<int64_t>(id), 2);
  }
  const std::string trace = recorder.Trace(true, At(1000));
  EXPECT_THAT(trace, Not(HasSubstr(Name(80))));
  EXPECT_THAT(trace, HasSubstr(Name(100)));
  EXPECT_THAT(trace, HasSubstr(Name(93)));
}

TEST(FlightRecorderTest, WhereAllAreUnderWayANewOneIsCountedInstead) {
  FlightRecorder recorder({.requests = 1});  // And room for 8 slow ones.
  std::vector<FlightTicket> tickets;
  for (uint64_t id = 1; id <= 11; ++id) {
    tickets.push_back(recorder.Open(RequestId{id}, At(0)));
  }
  EXPECT_THAT(recorder.Trace(false, At(1)), HasSubstr("\"unrecorded_requests\":2"));
  for (const FlightTicket& ticket : tickets) {
    recorder.Mark(ticket, FlightEvent::kFirstToken, At(1));
    recorder.Close(ticket, {.at = At(2), .outcome = "stop"});
  }
  EXPECT_GE(recorder.Open(RequestId{12}, At(3)).slot, 0);
}

TEST(FlightRecorderTest, ATicketOfAnEarlierRequestDoesNothing) {
  FlightRecorder recorder({.requests = 1});
  const FlightTicket old = recorder.Open(RequestId{1}, At(0));
  recorder.Close(old, {.at = At(1), .outcome = "stop"});
  recorder.Mark(old, FlightEvent::kPreempted, At(2));
  recorder.Close(old, {.at = At(3), .outcome = "length"});
  for (uint64_t id = 2; id <= 20; ++id) recorder.Open(RequestId{id}, At(4));
  recorder.Mark(old, FlightEvent::kPreempted, At(5));
  const std::string trace = recorder.Trace(false, At(6));
  EXPECT_THAT(trace, Not(HasSubstr("preempted")));
  EXPECT_THAT(trace, Not(HasSubstr("length")));
}

TEST(FlightRecorderTest, EventsBeyondTheRoomAreCounted) {
  FlightRecorder recorder({.requests = 1});
  const FlightTicket ticket = recorder.Open(RequestId{1}, At(0));
  for (size_t i = 0; i < FlightRecorder::kMaxEvents + 5; ++i) {
    recorder.Mark(ticket, FlightEvent::kPreempted, At(1));
  }
  recorder.Mark(ticket, FlightEvent::kFirstToken, At(7));  // Still known.
  EXPECT_THAT(recorder.Trace(false, At(9)), HasSubstr("\"lost_events\":6"));
  EXPECT_THAT(recorder.Trace(false, At(9)), HasSubstr("\"decode\""));
}

TEST(FlightRecorderTest, MemoryDoesNotGrow) {
  FlightRecorder recorder({.requests = 16});
  const int64_t bytes = recorder.bytes();
  for (uint64_t id = 1; id <= 5000; ++id) {
    Play(recorder, id, 0, 1);
    recorder.AddStep({.begin = At(0), .end = At(1)}, {});
  }
  EXPECT_EQ(recorder.bytes(), bytes);
  EXPECT_LT(bytes, 24 * 2048 + 1024 * 64);
}

TEST(FlightRecorderTest, ThreadsMayWriteAndReadAtTheSameTime) {
  FlightRecorder recorder({.requests = 8});
  std::atomic<bool> done{false};
  std::vector<std::thread> writers;
  for (uint64_t writer = 0; writer < 3; ++writer) {
    writers.emplace_back([&, writer] {
      for (uint64_t i = 1; i <= 500; ++i) {
        const uint64_t id = writer * 1000 + i;
        const FlightTicket ticket = recorder.Open(RequestId{id}, At(0));
        recorder.Span(ticket, FlightEvent::kQueue, At(0), At(1));
        const FlightRecorder::Slice slice{.ticket = ticket, .rows = 1};
        recorder.AddStep({.begin = At(1), .end = At(2)}, {&slice, 1});
        recorder.Close(ticket, {.at = At(3), .outcome = "stop"});
      }
    });
  }
  std::thread reader([&] {
    while (!done) EXPECT_THAT(recorder.Trace(false, At(9)), HasSubstr("traceEvents"));
  });
  for (std::thread& writer : writers) writer.join();
  done = true;
  reader.join();
  EXPECT_THAT(recorder.Trace(false, At(9)), HasSubstr("\"unrecorded_requests\":0"));
}

}  // namespace
}  // namespace renga
