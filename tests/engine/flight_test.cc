// What the engine tells the flight recorder of a request's course.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/engine_fixture.h"

namespace renga {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class FlightTest : public EngineTest {
 protected:
  std::string Trace() {
    return h().metrics.flight_recorder.Trace(false, h().clock.Now());
  }
  // The lane of one request: what follows its name up to the next one's.
  std::string LaneOf(uint64_t id) {
    const std::string trace = Trace();
    const size_t begin = trace.find("\"request " + std::to_string(id) + "\"}");
    const size_t end = trace.find("thread_name", begin);
    return trace.substr(begin, end == std::string::npos ? end : end - begin);
  }
  static void ExpectInOrder(const std::string& lane,
                            const std::vector<std::string>& names) {
    size_t at = 0;
    for (const std::string& name : names) {
      const size_t found = lane.find("\"" + name + "\"", at);
      ASSERT_NE(found, std::string::npos) << name << " in " << lane;
      at = found + 1;
    }
  }
};

TEST_F(FlightTest, ARequestHasItsStagesInOrder) {
  Build({.scheduler = {.prefill_slice_tokens = 0, .max_step_tokens = 64}, .pages = 16});
  backend_.on_step = [&](int64_t step) {
    h().clock.Advance(milliseconds(step == 5 ? 70 : 10));
    return OkStatus();
  };
  h().Submit(PromptOf(150, 1), 6);
  h().RunToEnd();
  const std::string lane = LaneOf(1);
  ExpectInOrder(lane, {"queue", "prefill", "prefill", "prefill", "first token", "decode",
                       "worst gap"});
  EXPECT_THAT(lane, HasSubstr("\"rows\":64"));
  EXPECT_THAT(lane, HasSubstr("\"rows\":22"));
  EXPECT_THAT(lane, HasSubstr("\"dur\":70000.000"));
}

TEST_F(FlightTest, EveryStepIsInItsLane) {
  Build({.scheduler = {}, .pages = 16});
  backend_.on_step = [&](int64_t) {
    h().clock.Advance(milliseconds(10));
    return OkStatus();
  };
  h().Submit(PromptOf(10, 1), 4);
  h().RunToEnd();
  const std::string trace = Trace();
  EXPECT_THAT(trace, HasSubstr("\"rows\":10,\"sequences\":1,\"decoding\":0"));
  EXPECT_THAT(trace, HasSubstr("\"rows\":1,\"sequences\":1,\"decoding\":1"));
  size_t steps = 0;
  for (size_t at = 0; (at = trace.find("\"name\":\"step\"", at)) != std::string::npos;
       ++at) {
    ++steps;
  }
  EXPECT_EQ(steps, backend_.records.size());
}

TEST_F(FlightTest, APreemptionAndTheReturnAreMarked) {
  Build({.scheduler = {}, .pages = 4});
  backend_.on_step = [&](int64_t) {
    h().clock.Advance(milliseconds(10));
    return OkStatus();
  };
  h().Submit(PromptOf(60, 1), 100);
  h().Submit(PromptOf(60, 2), 100);
  h().RunToEnd();
  ExpectInOrder(LaneOf(2), {"first token", "preempted", "readmitted", "prefill"});
}

TEST_F(FlightTest, APauseLastsFromItsReadersStopToItsReturn) {
  Build({.scheduler = {}, .pages = 32});
  h().Submit(PromptOf(10, 1), 10, [](int64_t n, TokenId) {
    return n == 4 ? SinkVerdict::kPause : SinkVerdict::kContinue;
  });
  h().Submit(PromptOf(10, 2), 30);
  backend_.on_step = [&](int64_t step) {
    h().clock.Advance(milliseconds(10));
    if (step == 20) h().queue.PostResume(RequestId{1});
    return OkStatus();
  };
  h().RunToEnd();
  const std::string lane = LaneOf(1);
  ExpectInOrder(lane, {"first token", "paused"});
  EXPECT_THAT(lane, HasSubstr("\"dur\":160000.000"));
  EXPECT_EQ(LaneOf(2).find("paused"), std::string::npos);
}

}  // namespace
}  // namespace renga
