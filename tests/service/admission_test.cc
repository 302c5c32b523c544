#include "service/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace renga {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const TimePoint kNow = TimePoint{} + seconds(1000);

FirstTokenBounds Until(Duration deadline) {
  return {.arrival = kNow, .deadline = kNow + deadline};
}

TEST(AdmissionTest, AFirstTokenAtTheBoundIsInTime) {
  EXPECT_TRUE(CheckFirstToken(Until(milliseconds(100)), kNow, milliseconds(100)).ok());
  EXPECT_FALSE(CheckFirstToken(Until(milliseconds(100)), kNow, milliseconds(101)).ok());
  const FirstTokenBounds limit{.arrival = kNow, .limit = milliseconds(100)};
  EXPECT_TRUE(CheckFirstToken(limit, kNow, milliseconds(100)).ok());
  EXPECT_FALSE(CheckFirstToken(limit, kNow, milliseconds(101)).ok());
}

TEST(AdmissionTest, WithoutBoundsOrForecastNothingIsRefused) {
  EXPECT_TRUE(CheckFirstToken({.arrival = kNow}, kNow, seconds(3600)).ok());
  const FirstTokenBounds tight{
      .arrival = kNow - seconds(1), .deadline = kNow, .limit = milliseconds(1)};
  EXPECT_TRUE(CheckFirstToken(tight, kNow, Duration::zero()).ok());
}

TEST(AdmissionTest, TheServersLimitRunsFromArrival) {
  const FirstTokenBounds bounds{.arrival = kNow - milliseconds(60),
                                .limit = milliseconds(100)};
  EXPECT_TRUE(CheckFirstToken(bounds, kNow, milliseconds(40)).ok());
  EXPECT_FALSE(CheckFirstToken(bounds, kNow, milliseconds(41)).ok());
}

TEST(AdmissionTest, ARefusalHasTheNumbersOfTheBoundThatIsNearer) {
  FirstTokenBounds bounds = Until(milliseconds(200));
  bounds.limit = milliseconds(500);
  Status status = CheckFirstToken(bounds, kNow, milliseconds(1200));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("predicted in 1200 ms"));
  EXPECT_THAT(status.message(), HasSubstr("deadline is in 200 ms"));

  bounds.deadline = kNow + seconds(3);
  status = CheckFirstToken(bounds, kNow, milliseconds(1200));
  EXPECT_THAT(status.message(), HasSubstr("limit is 500 ms"));
}

TEST(AdmissionTest, TheDelayIsWhatTheForecastIsTooLong) {
  EXPECT_EQ(CheckFirstToken(Until(seconds(1)), kNow, seconds(3)).retry_after(),
            seconds(2));
  EXPECT_EQ(CheckFirstToken(Until(seconds(1)), kNow, milliseconds(1001)).retry_after(),
            milliseconds(100));
  EXPECT_EQ(CheckFirstToken(Until(seconds(1)), kNow, seconds(3600)).retry_after(),
            seconds(10));
}

TEST(AdmissionTest, DelaysStayInsideTheirLimits) {
  EXPECT_EQ(RetryDelay(seconds(-1)), milliseconds(100));
  EXPECT_EQ(RetryDelay(milliseconds(700)), milliseconds(700));
  EXPECT_EQ(RetryDelay(Duration::max()), seconds(10));
}

}  // namespace
}  // namespace renga
