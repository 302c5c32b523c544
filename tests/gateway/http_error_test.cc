#include "gateway/http_error.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <chrono>

namespace renga {
namespace {

std::string HeaderOf(const HttpResponse& response, std::string_view name) {
  for (const HttpHeader& header : response.headers) {
    if (EqualsIgnoringCase(header.name, name)) return header.value;
  }
  return "";
}

TEST(HttpErrorTest, EveryCodeHasItsHttpStatus) {
  const std::vector<int> expected = {200, 499, 500, 400, 504, 404, 409, 403, 429,
                                     400, 409, 400, 501, 500, 503, 500, 401};
  for (size_t code = 0; code < expected.size(); ++code) {
    EXPECT_EQ(HttpStatusOf(static_cast<StatusCode>(code)), expected[code]) << code;
  }
}

TEST(HttpErrorTest, TheBodyHasOpenAisShape) {
  EXPECT_EQ(ErrorBody(InvalidArgument("top_p", "must be in (0, 1]")),
            R"({"error":{"message":"top_p: must be in (0, 1]",)"
            R"("type":"invalid_request_error","param":"top_p","code":null}})");
  const auto missing = boost::json::parse(ErrorBody(NotFound("no such model")));
  EXPECT_EQ(missing.at("error").at("code"), "model_not_found");
  EXPECT_TRUE(missing.at("error").at("param").is_null());
}

TEST(HttpErrorTest, ForeignBytesInAMessageStayValidJson) {
  boost::json::error_code error;
  boost::json::parse(ErrorBody(InvalidArgument("\xFF\"", "\xC3 \x01")), error);
  EXPECT_FALSE(error);
}

TEST(HttpErrorTest, RetryAfterIsRoundedUpAndExactInMilliseconds) {
  const HttpResponse busy = ErrorResponse(
      ResourceExhausted("full").WithRetryAfter(std::chrono::milliseconds(1200)));
  EXPECT_EQ(busy.status, 429);
  EXPECT_EQ(HeaderOf(busy, "retry-after"), "2");
  EXPECT_EQ(HeaderOf(busy, "retry-after-ms"), "1200");
  const HttpResponse soon = ErrorResponse(
      ResourceExhausted("full").WithRetryAfter(std::chrono::nanoseconds(1)));
  EXPECT_EQ(HeaderOf(soon, "retry-after"), "1");
  EXPECT_EQ(HeaderOf(soon, "retry-after-ms"), "1");
  EXPECT_EQ(HeaderOf(ErrorResponse(Unavailable("x")), "retry-after"), "1");
  EXPECT_EQ(HeaderOf(ErrorResponse(Internal("x")), "retry-after"), "");
}

TEST(HttpErrorTest, AMissingKeyAsksForOne) {
  const HttpResponse response =
      ErrorResponse(Status(StatusCode::kUnauthenticated, "a key is required"));
  EXPECT_EQ(response.status, 401);
  EXPECT_EQ(HeaderOf(response, "www-authenticate"), "Bearer");
}

}  // namespace
}  // namespace renga
