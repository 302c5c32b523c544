#include "transport/grpc_server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>

#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/transport/server_fixture.h"

namespace renga {
namespace {

using Script = FakeGenerationService::Script;
using Counts = FakeGenerationService::Counts;
using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using testing::HasSubstr;

class GrpcServerTest : public ServerFixture {
 protected:
  HealthCheckResponse::ServingStatus Check(const std::string& service) {
    auto health = Health::NewStub(NewChannel({}));
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    const grpc::Status status = health->Check(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.status();
  }
  // A request whose message has exactly `bytes` bytes.
  static v1::GenerateRequest RequestOfBytes(size_t bytes) {
    v1::GenerateRequest request = TextRequest(std::string(bytes, 'a'));
    request.mutable_text()->resize(bytes - (request.ByteSizeLong() - bytes));
    EXPECT_EQ(request.ByteSizeLong(), bytes);
    return request;
  }
};

TEST_F(GrpcServerTest, APortInUseIsRefusedByField) {
  GrpcSettings settings;
  settings.address = server_->address();
  const auto second = GrpcServer::Listen(settings);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().field(), "grpc.address");
  EXPECT_THAT(second.status().message(), HasSubstr(server_->address()));
}

// As the gateway of the same process reads it.
TEST_F(GrpcServerTest, AStreamOverTheInProcessChannelIsWhole) {
  const StreamResult expected = Stream(TextRequest("hi"));
  ASSERT_TRUE(expected.status.ok());
  stub_ = v1::Inference::NewStub(server_->InProcessChannel({}));
  for (int i = 0; i < 50; ++i) {
    const StreamResult result = Stream(TextRequest("hi"));
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_EQ(result.order, expected.order);
    EXPECT_EQ(result.text, expected.text);
  }
  stub_.reset();
}

TEST_F(GrpcServerTest, AnAddressThatIsNoneIsRefused) {
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",
                              "127.0.0.1:99999", ":1x", "192.0.2.1:1", "no.invalid:1"}) {
    GrpcSettings settings;
    settings.address = address;
    const auto server = GrpcServer::Listen(settings);
    ASSERT_FALSE(server.ok()) << address;
    EXPECT_EQ(server.status().field(), "grpc.address");
  }
}

TEST_F(GrpcServerTest, TheAddressHasTheBoundPort) {
  EXPECT_GT(server_->port(), 0);
  EXPECT_EQ(server_->address(), "127.0.0.1:" + std::to_string(server_->port()));
}

TEST_F(GrpcServerTest, CallsBeforeServeAreRefusedUnavailable) {
  GrpcSettings settings;
  settings.address = "127.0.0.1:0";
  server_ = *GrpcServer::Listen(settings);
  stub_ = NewStub({});
  EXPECT_EQ(Stream(TextRequest("x")).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  v1::GenerateUnaryResponse unary;
  EXPECT_EQ(Unary(TextRequest("x"), &unary).error_code(), grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext context;
  v1::GetModelResponse model;
  EXPECT_EQ(stub_->GetModel(&context, {}, &model).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Check(""), HealthCheckResponse::NOT_SERVING);

  server_->Serve(service_, metrics_);
  EXPECT_TRUE(Stream(TextRequest("x")).status.ok());
}

TEST_F(GrpcServerTest, HealthFollowsSetServing) {
  for (const char* service : {"", "renga.v1.Inference"}) {
    server_->SetServing(false);
    EXPECT_EQ(Check(service), HealthCheckResponse::NOT_SERVING);
    server_->SetServing(true);
    EXPECT_EQ(Check(service), HealthCheckResponse::SERVING);
  }
}

TEST_F(GrpcServerTest, HealthOfAnUnknownServiceIsNotFound) {
  auto health = Health::NewStub(NewChannel({}));
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service("nobody");
  HealthCheckResponse response;
  EXPECT_EQ(health->Check(&context, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext watch_context;
  auto reader = health->Watch(&watch_context, request);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  watch_context.TryCancel();
  EXPECT_FALSE(reader->Read(&response));
}

TEST_F(GrpcServerTest, WatchTellsEachChangeAndEndsWithTheServer) {
  auto health = Health::NewStub(NewChannel({}));
  grpc::ClientContext context;
  auto reader = health->Watch(&context, {});
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  server_->SetServing(true);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  std::thread draining([&] { server_->Shutdown(); });
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "shutting down");  // Told, not reset.
  draining.join();
}

TEST_F(GrpcServerTest, DrainLetsRunningCallsFinishAndRefusesNewOnes) {
  service_.script = [](const GenerateRequest& request) {
    Script what;
    if (std::get<std::string>(request.prompt) == "slow") {
      what.tokens = FakeGenerationService::kEndless;
    }
    return what;
  };
  server_->SetServing(true);
  grpc::ClientContext context;
  auto running = stub_->Generate(&context, TextRequest("slow"));
  service_.WaitFor([](const Counts& c) { return c.running == 1; });
  EXPECT_EQ(server_->active_calls(), 1);

  EXPECT_FALSE(server_->Drain(std::chrono::steady_clock::now()));
  EXPECT_EQ(Check(""), HealthCheckResponse::NOT_SERVING);
  server_->SetServing(true);  // Comes too late.
  EXPECT_EQ(Check(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Stream(TextRequest("new")).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);

  v1::GenerateResponse message;
  EXPECT_TRUE(running->Read(&message));  // It still runs.
  service_.Cancel(service_.last_request().id);
  EXPECT_TRUE(server_->Drain(std::chrono::steady_clock::now() + std::chrono::hours(1)));
  // The engine's status, not a reset.
  EXPECT_EQ(ReadAll(*running).status.error_message(), "cancelled");
}

TEST_F(GrpcServerTest, ShutdownEndsWhatIsLeft) {
  service_.script = [](const GenerateRequest&) { return Script{.silent = true}; };
  grpc::ClientContext context;
  auto running = stub_->Generate(&context, TextRequest("x"));
  service_.WaitFor([](const Counts& c) { return c.running == 1; });
  server_->Shutdown();
  const Counts counts = service_.counts();
  EXPECT_EQ(counts.running, 0);
  EXPECT_EQ(counts.done, 1);
  EXPECT_FALSE(ReadAll(*running).status.ok());
}

TEST_F(GrpcServerTest, AMessageAtTheLimitWorksAndOneByteMoreIsRefused) {
  Start({.max_message_bytes = 100'000});
  service_.script = [](const GenerateRequest& request) {
    return Script{.tokens = 1,
                  .text = std::to_string(std::get<std::string>(request.prompt).size())};
  };
  const StreamResult at = Stream(RequestOfBytes(100'000));
  EXPECT_TRUE(at.status.ok()) << at.status.error_message();
  EXPECT_EQ(at.text, "999960");  // 4 bytes of framing, and token 0.
  for (const size_t bytes : {100'001, 1'000'000}) {
    const grpc::Status status = Stream(RequestOfBytes(bytes)).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("100000"));
  }
  EXPECT_TRUE(Stream(TextRequest("x")).status.ok());
}

TEST_F(GrpcServerTest, ACompressedMessageIsRefusedUnexpanded) {
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  const grpc::Status status =
      ReadAll(*stub_->Generate(&context, TextRequest(std::string(4096, 'a')))).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(service_.counts().started, 0);
}

TEST_F(GrpcServerTest, ReflectionListsTheServices) {
  // ServerReflectionRequest{list_services: ""}, by hand: the proto is not installed.
  const char list_services[] = {0x3a, 0x00};
  grpc::Slice slice(list_services, sizeof list_services);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::GenericStub stub(NewChannel({}));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  grpc::ByteBuffer response;
  call->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  call->Write(request, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  call->Read(&response, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  grpc::Slice all;
  ASSERT_TRUE(response.DumpToSingleSlice(&all).ok());
  const std::string text(reinterpret_cast<const char*>(all.begin()), all.size());
  EXPECT_THAT(text, HasSubstr("renga.v1.Inference"));
  EXPECT_THAT(text, HasSubstr("grpc.health.v1.Health"));
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

}  // namespace
}  // namespace renga
