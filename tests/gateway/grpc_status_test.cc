#include "gateway/grpc_status.h"

#include <gtest/gtest.h>

#include <chrono>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace renga {
namespace {

TEST(GrpcStatusTest, OkIsOk) { EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok()); }

TEST(GrpcStatusTest, CodesAreTheSameAndMessagesAreKept) {
  for (int code = 1; code <= 16; ++code) {
    const Status status =
        FromGrpcStatus({static_cast<grpc::StatusCode>(code), "what happened"});
    EXPECT_EQ(static_cast<int>(status.code()), code);
    if (code != grpc::StatusCode::UNAVAILABLE) {
      EXPECT_EQ(status.message(), "what happened");
    }
  }
}

TEST(GrpcStatusTest, TheFieldIsNamedAsOpenAiNamesIt) {
  const auto invalid = [](const char* message) {
    return FromGrpcStatus({grpc::StatusCode::INVALID_ARGUMENT, message});
  };
  EXPECT_EQ(invalid("ignore_end_token: wrong"), InvalidArgument("ignore_eos", "wrong"));
  EXPECT_EQ(invalid("token_ids[3]: is 9: too large"),
            InvalidArgument("prompt[3]", "is 9: too large"));
  EXPECT_EQ(invalid("System role not supported"),
            InvalidArgument("", "System role not supported"));
  EXPECT_EQ(invalid("Hint: no field"), InvalidArgument("", "Hint: no field"));
  EXPECT_EQ(FromGrpcStatus({grpc::StatusCode::INTERNAL, "step: lost"}).field(), "");
}

TEST(GrpcStatusTest, AddressesBehindTheGatewayAreNotTold) {
  const Status status = FromGrpcStatus(
      {grpc::StatusCode::UNAVAILABLE, "failed to connect to ipv4:10.0.0.5:50051"});
  EXPECT_EQ(status.message().find("10.0"), std::string::npos);
}

TEST(GrpcStatusTest, AMessageThatIsTooLargeIsNotSentAgain) {
  const Status status =
      FromGrpcStatus({grpc::StatusCode::RESOURCE_EXHAUSTED,
                      "Received message larger than max (70008 vs. 65536)"});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

TEST(GrpcStatusTest, TheRetryDelayIsFoundAmongTheDetails) {
  google::rpc::Status rich;
  rich.add_details()->PackFrom(google::rpc::Status());
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(2);
  info.mutable_retry_delay()->set_nanos(5);
  rich.add_details()->PackFrom(info);
  const Status status = FromGrpcStatus(
      {grpc::StatusCode::RESOURCE_EXHAUSTED, "full", rich.SerializeAsString()});
  EXPECT_EQ(status.retry_after(), std::chrono::seconds(2) + std::chrono::nanoseconds(5));
  EXPECT_FALSE(FromGrpcStatus({grpc::StatusCode::RESOURCE_EXHAUSTED, "x", "\xFF\xFF"})
                   .retry_after());
}

}  // namespace
}  // namespace renga
