#include "renga/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/status_macros.h"

namespace renga {
namespace {

StatusOr<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("x", "must be even");
  return x / 2;
}

StatusOr<int> Quarter(int x) {
  RENGA_ASSIGN_OR_RETURN(const int half, Half(x));
  RENGA_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CheckQuarter(int x) {
  RENGA_RETURN_IF_ERROR(Quarter(x).status());
  return OkStatus();
}

TEST(StatusTest, PrintsCodeFieldAndMessage) {
  EXPECT_EQ(OkStatus().ToString(), "OK");
  EXPECT_EQ(InvalidArgument("top_p", "must be in (0, 1]").ToString(),
            "INVALID_ARGUMENT: top_p: must be in (0, 1]");
  EXPECT_EQ(NotFound("no such model").ToString(), "NOT_FOUND: no such model");
}

TEST(StatusTest, EveryCodeHasItsGrpcNameAndNumber) {
  EXPECT_EQ(StatusCodeName(StatusCode::kUnauthenticated), "UNAUTHENTICATED");
  EXPECT_EQ(static_cast<int>(StatusCode::kUnauthenticated), 16);
  EXPECT_EQ(StatusCodeName(StatusCode::kResourceExhausted), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(static_cast<int>(StatusCode::kResourceExhausted), 8);
  EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(99)), "UNKNOWN");
}

TEST(StatusTest, TheMacrosPassTheFirstFailureUpUnchanged) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status(), InvalidArgument("x", "must be even"));
  EXPECT_EQ(Quarter(7).status().field(), "x");
  EXPECT_TRUE(CheckQuarter(4).ok());
  EXPECT_FALSE(CheckQuarter(2).ok());
}

TEST(StatusTest, RetryAfterTravelsWithTheStatus) {
  const Status status =
      ResourceExhausted("full").WithRetryAfter(std::chrono::milliseconds(7));
  ASSERT_TRUE(status.retry_after().has_value());
  EXPECT_EQ(*status.retry_after(), std::chrono::milliseconds(7));
}

TEST(StatusOrTest, HoldsMoveOnlyValues) {
  StatusOr<std::unique_ptr<std::string>> result(std::make_unique<std::string>("x"));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(**result, "x");
  const std::unique_ptr<std::string> taken = *std::move(result);
  EXPECT_EQ(*taken, "x");
}

TEST(StatusOrDeathTest, ReadingAFailedValueIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  StatusOr<int> failed(NotFound("gone"));
  EXPECT_DEATH((void)*failed, "");
}

}  // namespace
}  // namespace renga
