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

TEST_F(GrpcUnaryAnswerTest, ItEqualsTheStreamChoiceByChoiceWithLogprobs) {
  // Choices of different lengths, one of them without any token.
  for (const std::vector<int64_t>& tokens :
       std::vector<std::vector<int64_t>>{{3}, {2, 4}, {5, 0, 1, 0}}) {
    service_.script = [tokens](const GenerateRequest&) {
      return Script{.text = "ü", .choice_tokens = tokens, .cached_tokens = 4};
    };
    v1::GenerateRequest request = TextRequest("x");
    request.set_n(static_cast<int32_t>(tokens.size()));
    request.set_logprobs(2);
    request.set_prompt_logprobs(1);
    request.set_echo(true);
    StreamResult stream = Stream(request);
    ASSERT_TRUE(stream.status.ok());
    v1::GenerateUnaryResponse unary;
    ASSERT_TRUE(Unary(request, &unary).ok());

    EXPECT_EQ(unary.finished().SerializeAsString(), stream.finished.SerializeAsString());
    unary.mutable_started()->set_request_id(stream.started.request_id());
    EXPECT_EQ(unary.started().SerializeAsString(), stream.started.SerializeAsString());
    EXPECT_EQ(unary.started().prompt_logprobs_size(), 6);
    ASSERT_EQ(unary.more_choices_size(), request.n() - 1);
    v1::Choice first;
    first.set_text(unary.text());
    *first.mutable_token_ids() = unary.token_ids();
    *first.mutable_logprobs() = unary.logprobs();
    EXPECT_EQ(first.SerializeAsString(), stream.choices[0].SerializeAsString());
    EXPECT_EQ(first.logprobs_size(), tokens[0]);
    for (int32_t i = 1; i < request.n(); ++i) {
      stream.choices[i].set_choice(i);  // No chunk: nothing to tell its number.
      EXPECT_EQ(unary.more_choices(i - 1).SerializeAsString(),
                stream.choices[i].SerializeAsString());
      EXPECT_EQ(unary.more_choices(i - 1).token_ids_size(), tokens[i]);
    }
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
