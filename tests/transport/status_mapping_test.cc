#include "transport/status_mapping.h"

#include <gmock/gmock.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace renga {
namespace {

google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

TEST(StatusMappingTest, EveryCodeKeepsItsNumber) {
  for (int code = 0; code <= 16; ++code) {
    const grpc::Status status = ToGrpcStatus(Status(static_cast<StatusCode>(code), "m"));
    EXPECT_EQ(static_cast<int>(status.error_code()), code);
  }
}

TEST(StatusMappingTest, TheFieldLeadsTheMessage) {
  EXPECT_EQ(ToGrpcStatus(InvalidArgument("top_p", "bad")).error_message(), "top_p: bad");
  EXPECT_EQ(ToGrpcStatus(Unavailable("later")).error_message(), "later");
  EXPECT_EQ(ToGrpcStatus(OkStatus()).error_message(), "");
}

TEST(StatusMappingTest, AnOverloadSaysWhenToComeBack) {
  const struct {
    Duration delay;
    int64_t seconds;
    int32_t nanos;
  } cases[] = {{std::chrono::milliseconds(1500), 1, 500'000'000},
               {std::chrono::nanoseconds(1), 0, 1},
               {std::chrono::seconds(-5), 0, 0}};
  for (const auto& c : cases) {
    const grpc::Status status =
        ToGrpcStatus(ResourceExhausted("the queue is full").WithRetryAfter(c.delay));
    const google::rpc::Status details = DetailsOf(status);
    EXPECT_EQ(details.code(), 8);
    EXPECT_EQ(details.message(), "the queue is full");
    ASSERT_EQ(details.details_size(), 1);
    google::rpc::RetryInfo info;
    ASSERT_TRUE(details.details(0).UnpackTo(&info));
    EXPECT_EQ(info.retry_delay().seconds(), c.seconds);
    EXPECT_EQ(info.retry_delay().nanos(), c.nanos);
  }
}

TEST(StatusMappingTest, AnInvalidArgumentNamesItsFieldInTheDetails) {
  const google::rpc::Status details =
      DetailsOf(ToGrpcStatus(InvalidArgument("top_p", "must be in (0, 1]")));
  EXPECT_EQ(details.code(), 3);
  EXPECT_EQ(details.message(), "top_p: must be in (0, 1]");
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::BadRequest bad;
  ASSERT_TRUE(details.details(0).UnpackTo(&bad));
  ASSERT_EQ(bad.field_violations_size(), 1);
  EXPECT_EQ(bad.field_violations(0).field(), "top_p");
  EXPECT_EQ(bad.field_violations(0).description(), "must be in (0, 1]");
}

TEST(StatusMappingTest, WithoutAHintOrAFieldThereAreNoDetails) {
  EXPECT_EQ(ToGrpcStatus(ResourceExhausted("full")).error_details(), "");
  EXPECT_EQ(ToGrpcStatus(NotFound("no such").WithField("model")).error_details(), "");
  EXPECT_EQ(ToGrpcStatus(OkStatus()).error_details(), "");
}

// A client drops a call whose trailers are larger than 8 KiB.
TEST(StatusMappingTest, ALongTextIsCutBetweenCharactersAndFitsTheTrailers) {
  for (size_t shift = 0; shift < 3; ++shift) {
    std::string text(shift, 'x');
    for (int i = 0; i < 5000; ++i) text += "\u20ac";
    const grpc::Status status = ToGrpcStatus(InvalidArgument("f", text));
    const std::string message = status.error_message();
    EXPECT_THAT(message, testing::EndsWith("\u20ac..."));
    EXPECT_LE(3 * message.size() + status.error_details().size() * 4 / 3, 7000u);
    // Proto3 strings are UTF-8.
    EXPECT_EQ(DetailsOf(status).message(), message);
  }
}

}  // namespace
}  // namespace renga
