#include "transport/status_mapping.h"

#include <gtest/gtest.h>

namespace renga {
namespace {

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

}  // namespace
}  // namespace renga
