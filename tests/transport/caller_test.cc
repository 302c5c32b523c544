// Who calls: checked from outside, through every RPC of both servers.

#include "transport/caller.h"

#include <gmock/gmock.h>

#include "tests/fakes/fake_server_control.h"
#include "tests/transport/raw_call.h"
#include "tests/transport/server_fixture.h"
#include "transport/admin_server.h"

namespace renga {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

constexpr char kInference[] = "renga.v1.Inference";
constexpr char kAdmin[] = "renga.v1.Admin";
constexpr char kReflection[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
const std::string kTeamKey = "team-key-0123456789";
const std::string kAdminKey = "admin-key-0123456789";

class CallerTest : public ServerFixture {
 protected:
  void SetUp() override {
    const auto keys = *ApiKeys::Parse("team " + kTeamKey + "\nadmin " + kAdminKey + "\n");
    Start({}, keys);
    admin_ = *AdminServer::Listen("127.0.0.1:0", keys);
    admin_->Serve(control_);
    inference_channel_ = NewChannel({});
    admin_channel_ =
        grpc::CreateChannel(admin_->address(), grpc::InsecureChannelCredentials());
  }
  void TearDown() override {
    admin_.reset();
    ServerFixture::TearDown();
  }

  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& service) {
    return service == kAdmin ? admin_channel_ : inference_channel_;
  }
  static Metadata Bearer(const std::string& key) {
    return {{"authorization", "Bearer " + key}};
  }

  FakeServerControl control_;
  std::unique_ptr<AdminServer> admin_;
  std::shared_ptr<grpc::Channel> inference_channel_;
  std::shared_ptr<grpc::Channel> admin_channel_;
};

TEST_F(CallerTest, EveryRpcWantsAKeyAndSaysTheSameWhateverIsWrongWithIt) {
  EXPECT_THAT(MethodsOf(kInference), SizeIs(8));
  EXPECT_THAT(MethodsOf(kAdmin), SizeIs(4));
  const std::vector<Metadata> wrong = {
      {},
      Bearer("wrong-key-0123456789"),
      Bearer(kTeamKey + "x"),
      Bearer(""),
      {{"authorization", kTeamKey}},
      {{"authorization", "Basic " + kTeamKey}},
      {{"authorization", "Bearer " + kTeamKey}, {"authorization", "Bearer wrong"}},
      {{"x-tenant-id", "admin"}},
  };
  for (const char* service : {kInference, kAdmin}) {
    for (const std::string& method : MethodsOf(service)) {
      for (const Metadata& metadata : wrong) {
        const RawAnswer answer = RawCall(ChannelOf(service), method, metadata);
        EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
            << method;
        EXPECT_EQ(answer.status.error_message(),
                  "this server wants a key that it knows: authorization: Bearer KEY");
        EXPECT_EQ(answer.first, "");
      }
    }
  }
  EXPECT_EQ(service_.counts().started, 0);
  EXPECT_EQ(control_.calls(), 0);
}

TEST_F(CallerTest, WithAKeyEveryRpcIsReached) {
  for (const char* service : {kInference, kAdmin}) {
    for (const std::string& method : MethodsOf(service)) {
      const RawAnswer answer = RawCall(ChannelOf(service), method, Bearer(kAdminKey));
      EXPECT_NE(answer.status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
      EXPECT_NE(answer.status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
    }
  }
}

TEST_F(CallerTest, WithoutAKeyNothingTellsWhetherTheServerIsReady) {
  GrpcSettings settings;
  settings.address = "127.0.0.1:0";
  server_ = *GrpcServer::Listen(settings, *ApiKeys::Parse("t " + kTeamKey));
  for (const std::string& method : MethodsOf(kInference)) {
    EXPECT_EQ(RawCall(NewChannel({}), method, {}).status.error_code(),
              grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(RawCall(NewChannel({}), method, Bearer(kTeamKey)).status.error_code(),
              grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(CallerTest, HealthIsOpenToAllAndReflectionToNobody) {
  EXPECT_TRUE(
      RawCall(inference_channel_, "/grpc.health.v1.Health/Check", {}).status.ok());
  for (const auto& channel : {inference_channel_, admin_channel_}) {
    EXPECT_EQ(RawCall(channel, kReflection, Bearer(kAdminKey)).status.error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST_F(CallerTest, TheKeyNamesTheTenant) {
  for (const std::string scheme : {"Bearer ", "bearer ", "BEARER "}) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", scheme + kTeamKey);
    ASSERT_TRUE(ReadAll(*stub_->Generate(&context, TextRequest("x"))).status.ok());
    EXPECT_EQ(service_.last_request().tenant, "team");
  }
}

TEST_F(CallerTest, ATenantHeaderBesideAKeyIsRefusedByName) {
  Metadata metadata = Bearer(kTeamKey);
  metadata.emplace_back("x-tenant-id", "team");
  for (const std::string& method : MethodsOf(kInference)) {
    const grpc::Status status = RawCall(inference_channel_, method, metadata).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_THAT(status.error_message(), StartsWith("x-tenant-id: "));
  }
}

TEST_F(CallerTest, OnlyTheTenantAdminMayCallAdmin) {
  for (const std::string& method : MethodsOf(kAdmin)) {
    const grpc::Status status = RawCall(admin_channel_, method, Bearer(kTeamKey)).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << method;
  }
  EXPECT_EQ(control_.calls(), 0);
}

TEST_F(CallerTest, NoAnswerShowsAKey) {
  for (const char* service : {kInference, kAdmin}) {
    for (const std::string& method : MethodsOf(service)) {
      const RawAnswer answer =
          RawCall(ChannelOf(service), method, Bearer("wrong-key-0123456789"));
      EXPECT_THAT(answer.status.error_message() + answer.status.error_details(),
                  AllOf(Not(HasSubstr("wrong-key")), Not(HasSubstr(kTeamKey))));
    }
  }
}

TEST_F(CallerTest, ATenantThatIsNotPrintableOrComesTwiceIsRefused) {
  Start({});
  for (const Metadata& metadata : {Metadata{{"x-tenant-id", "a"}, {"x-tenant-id", "b"}},
                                   Metadata{{"x-tenant-id", std::string(129, 'a')}}}) {
    const grpc::Status status =
        RawCall(NewChannel({}), "/renga.v1.Inference/GetLoad", metadata).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), StartsWith("x-tenant-id: "));
  }
  EXPECT_TRUE(RawCall(NewChannel({}), "/renga.v1.Inference/GetLoad",
                      {{"x-tenant-id", std::string(128, '~')}})
                  .status.ok());
}

}  // namespace
}  // namespace renga
