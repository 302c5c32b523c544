#include "transport/grpc_listener.h"

#include <gmock/gmock.h>

namespace renga {
namespace {

TEST(GrpcListenerTest, AddressesThatGrpcWouldUnderstandOtherwiseAreRefusedByField) {
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",
                              "127.0.0.1:99999", "127.0.0.1:-1", ":50051"}) {
    const auto listener = ListenGrpc({.address = address, .field = "some.address"});
    ASSERT_FALSE(listener.ok()) << address;
    EXPECT_EQ(listener.status().field(), "some.address");
  }
}

TEST(GrpcListenerTest, TheAddressHasTheBoundPort) {
  auto listener = ListenGrpc({.address = "127.0.0.1:0", .field = "some.address"});
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  EXPECT_GT(listener->port, 0);
  EXPECT_EQ(listener->address, "127.0.0.1:" + std::to_string(listener->port));
  ShutdownGrpc(*listener->server);
}

TEST(GrpcListenerTest, APortIsNotShared) {
  auto first = ListenGrpc({.address = "127.0.0.1:0", .field = "some.address"});
  ASSERT_TRUE(first.ok());
  const auto second = ListenGrpc({.address = first->address, .field = "some.address"});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), testing::HasSubstr(first->address));
  ShutdownGrpc(*first->server);
}

}  // namespace
}  // namespace renga
