#include "transport/admin_server.h"

#include <gmock/gmock.h>

#include "tests/fakes/fake_server_control.h"
#include "tests/transport/raw_call.h"
#include "tests/transport/server_fixture.h"

namespace renga {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr char kReflection[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

class AdminServerTest : public ServerFixture {
 protected:
  void SetUp() override {
    ServerFixture::SetUp();
    admin_ = *AdminServer::Listen("127.0.0.1:0");
    channel_ = grpc::CreateChannel(admin_->address(), grpc::InsecureChannelCredentials());
  }
  void TearDown() override {
    admin_.reset();
    ServerFixture::TearDown();
  }

  FakeServerControl control_;
  std::unique_ptr<AdminServer> admin_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(AdminServerTest, AnAddressThatCannotBeHadIsRefusedByItsField) {
  for (const std::string& address :
       {std::string("127.0.0.1"), std::string("x:99999"), admin_->address()}) {
    const auto second = AdminServer::Listen(address);
    ASSERT_FALSE(second.ok()) << address;
    EXPECT_EQ(second.status().field(), "admin.grpc_address");
  }
}

TEST_F(AdminServerTest, CallsBeforeServeAreRefusedUnavailable) {
  EXPECT_THAT(MethodsOf("renga.v1.Admin"), SizeIs(4));
  for (const std::string& method : MethodsOf("renga.v1.Admin")) {
    EXPECT_EQ(RawCall(channel_, method, {}).status.error_code(),
              grpc::StatusCode::UNAVAILABLE);
  }
  admin_->Serve(control_);
  for (const std::string& method : MethodsOf("renga.v1.Admin")) {
    EXPECT_TRUE(RawCall(channel_, method, {}).status.ok()) << method;
  }
}

TEST_F(AdminServerTest, TheTwoServicesAreReachedOnTheirOwnPortsAlone) {
  admin_->Serve(control_);
  for (const std::string& method : MethodsOf("renga.v1.Inference")) {
    EXPECT_EQ(RawCall(channel_, method, {}).status.error_code(),
              grpc::StatusCode::UNIMPLEMENTED)
        << method;
  }
  for (const std::string& method : MethodsOf("renga.v1.Admin")) {
    EXPECT_EQ(RawCall(NewChannel({}), method, {}).status.error_code(),
              grpc::StatusCode::UNIMPLEMENTED)
        << method;
  }
  EXPECT_EQ(control_.calls(), 0);
}

TEST_F(AdminServerTest, ReflectionListsTheServicesOfEachPortAlone) {
  const std::string list_services("\x3a\x00", 2);  // list_services: ""
  const std::string admin = RawCall(channel_, kReflection, {}, list_services).first;
  EXPECT_THAT(admin, HasSubstr("renga.v1.Admin"));
  EXPECT_THAT(admin, Not(HasSubstr("renga.v1.Inference")));
  const std::string client =
      RawCall(NewChannel({}), kReflection, {}, list_services).first;
  EXPECT_THAT(client, HasSubstr("renga.v1.Inference"));
  EXPECT_THAT(client, Not(HasSubstr("renga.v1.Admin")));
}

TEST_F(AdminServerTest, ShutdownWaitsForARunningFlush) {
  Mutex mutex;
  CondVar changed;
  bool flushing = false;
  bool go_on = false;
  control_.flush = [&]() -> StatusOr<int64_t> {
    MutexLock lock(mutex);
    flushing = true;
    changed.NotifyAll();
    while (!go_on) changed.Wait(mutex);
    return int64_t{1};
  };
  admin_->Serve(control_);
  std::thread calling([&] { RawCall(channel_, "/renga.v1.Admin/FlushCache", {}); });
  {
    MutexLock lock(mutex);
    while (!flushing) changed.Wait(mutex);
  }
  // The other calls do not wait behind it.
  EXPECT_TRUE(RawCall(channel_, "/renga.v1.Admin/MemoryReport", {}).status.ok());
  EXPECT_TRUE(RawCall(channel_, "/renga.v1.Admin/Drain", {}).status.ok());
  std::thread shutting([&] { admin_->Shutdown(); });
  {
    MutexLock lock(mutex);
    go_on = true;
    changed.NotifyAll();
  }
  calling.join();
  shutting.join();
}

}  // namespace
}  // namespace renga
