#include "transport/grpc_unary_answer.h"

#include "tests/transport/server_fixture.h"

namespace renga {
namespace {

using Script = FakeGenerationService::Script;
using Counts = FakeGenerationService::Counts;

class GrpcUnaryAnswerTest : public ServerFixture {};

TEST_F(GrpcUnaryAnswerTest, ItEqualsTheStreamByteForByte) {
  for (const int64_t tokens : {0, 1, 2, 500}) {
    service_.script = [tokens](const GenerateRequest&) {
      return Script{.tokens = tokens, .text = "ü\n"};
    };
    const StreamResult stream = Stream(TextRequest("x"));
    ASSERT_TRUE(stream.status.ok());
    v1::GenerateUnaryResponse unary;
    ASSERT_TRUE(Unary(TextRequest("x"), &unary).ok());
    EXPECT_EQ(unary.text(), stream.text);
    EXPECT_EQ(std::vector<int32_t>(unary.token_ids().begin(), unary.token_ids().end()),
              stream.token_ids);
    EXPECT_EQ(unary.token_ids_size(), tokens);
    EXPECT_EQ(unary.finished().SerializeAsString(), stream.finished.SerializeAsString());
    unary.mutable_started()->set_request_id(stream.started.request_id());
    EXPECT_EQ(unary.started().SerializeAsString(), stream.started.SerializeAsString());
  }
}

TEST_F(GrpcUnaryAnswerTest, ACancelReachesTheService) {
  service_.script = [](const GenerateRequest&) { return Script{.silent = true}; };
  grpc::ClientContext context;
  std::thread canceller([&] {
    service_.WaitFor([](const Counts& c) { return c.running == 1; });
    context.TryCancel();
  });
  v1::GenerateUnaryResponse response;
  const grpc::Status status = stub_->GenerateUnary(&context, TextRequest("x"), &response);
  canceller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  service_.WaitFor([](const Counts& c) { return c.cancels == 1 && c.running == 0; });
}

TEST_F(GrpcUnaryAnswerTest, APassedDeadlineEndsTheRequest) {
  service_.script = [](const GenerateRequest&) { return Script{.silent = true}; };
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(30));
  v1::GenerateUnaryResponse response;
  const grpc::Status status = stub_->GenerateUnary(&context, TextRequest("x"), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  service_.WaitFor([](const Counts& c) { return c.started == 1 && c.running == 0; });
}

}  // namespace
}  // namespace renga
