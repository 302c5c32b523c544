#include "transport/grpc_service.h"

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>

#include "tests/transport/server_fixture.h"

namespace renga {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class GrpcServiceTest : public ServerFixture {};

TEST_F(GrpcServiceTest, EveryFieldReachesTheService) {
  v1::GenerateRequest request;
  auto& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content("hi");
  request.mutable_chat()->set_add_generation_prompt(false);
  request.set_model("fake");
  request.mutable_sampling()->set_temperature(0.5f);
  request.mutable_sampling()->set_top_k(7);
  request.mutable_sampling()->set_top_p(0.25f);
  request.mutable_sampling()->set_min_p(0.125f);
  request.mutable_sampling()->set_seed(~uint64_t{0});
  request.set_max_tokens(int64_t{1} << 40);
  request.add_stop("a");
  request.add_stop("b");
  request.add_stop_token_ids(-3);
  request.set_ignore_end_token(true);
  ASSERT_TRUE(Stream(request).status.ok());

  const GenerateRequest got = service_.last_request();
  const auto& chat = std::get<ChatInput>(got.prompt);
  ASSERT_EQ(chat.messages.size(), 1u);
  EXPECT_EQ(chat.messages[0].role, "user");
  EXPECT_EQ(chat.messages[0].content, "hi");
  EXPECT_FALSE(chat.add_generation_prompt);
  EXPECT_EQ(got.model, "fake");
  EXPECT_EQ(got.sampling.temperature, 0.5f);
  EXPECT_EQ(got.sampling.top_k, 7);
  EXPECT_EQ(got.sampling.top_p, 0.25f);
  EXPECT_EQ(got.sampling.min_p, 0.125f);
  EXPECT_EQ(got.sampling.seed, ~uint64_t{0});
  EXPECT_EQ(got.max_tokens, int64_t{1} << 40);
  EXPECT_THAT(got.stop, ElementsAre("a", "b"));
  EXPECT_THAT(got.stop_token_ids, ElementsAre(-3));
  EXPECT_TRUE(got.ignore_end_token);
  EXPECT_NE(got.id, RequestId{});
  EXPECT_EQ(got.deadline, std::nullopt);
}

TEST_F(GrpcServiceTest, TheDeadlineOfTheCallReachesTheService) {
  const auto before = std::chrono::steady_clock::now();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
  ReadAll(*stub_->Generate(&context, TextRequest("x")));
  const auto deadline = service_.last_request().deadline;
  ASSERT_TRUE(deadline.has_value());
  EXPECT_GT(*deadline, before + std::chrono::minutes(59));
  EXPECT_LT(*deadline, std::chrono::steady_clock::now() + std::chrono::minutes(61));
}

TEST_F(GrpcServiceTest, ARefusalOfTheServiceKeepsCodeFieldAndMessage) {
  service_.script = [](const GenerateRequest&) {
    return FakeGenerationService::Script{.refusal = InvalidArgument("top_p", "too big")};
  };
  const grpc::Status streamed = Stream(TextRequest("x")).status;
  v1::GenerateUnaryResponse response;
  const grpc::Status unary = Unary(TextRequest("x"), &response);
  for (const grpc::Status& status : {streamed, unary}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(), "top_p: too big");
  }
}

TEST_F(GrpcServiceTest, ARequestWithoutPromptIsRefusedByField) {
  const StreamResult result = Stream({});
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(result.status.error_message(), StartsWith("input: "));
  EXPECT_EQ(service_.counts().started, 0);
}

TEST_F(GrpcServiceTest, AnUnknownFieldIsRefusedByItsNumber) {
  v1::GenerateRequest request = TextRequest("x");
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(10, 1);
  const StreamResult result = Stream(request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(result.status.error_message(),
              HasSubstr("unknown field 10 of renga.v1.Gen"));
  v1::GenerateUnaryResponse response;
  EXPECT_EQ(Unary(request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(service_.counts().started, 0);
}

TEST_F(GrpcServiceTest, TextThatIsNotUtf8IsRefusedByField) {
  v1::GenerateRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(2, "\xff");
  const StreamResult result = Stream(request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(result.status.error_message(), "GenerateRequest.text: is not UTF-8");
}

TEST_F(GrpcServiceTest, TheRequestIdOfTheClientComesBack) {
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "mine-1");
  ReadAll(*stub_->Generate(&context, TextRequest("x")));
  const auto& metadata = context.GetServerInitialMetadata();
  ASSERT_EQ(metadata.count("x-request-id"), 1u);
  EXPECT_EQ(metadata.find("x-request-id")->second, "mine-1");
}

TEST_F(GrpcServiceTest, WithoutOneTheServersOwnIdDoes) {
  grpc::ClientContext context;
  const StreamResult result = ReadAll(*stub_->Generate(&context, TextRequest("x")));
  const auto& metadata = context.GetServerInitialMetadata();
  ASSERT_EQ(metadata.count("x-request-id"), 1u);
  EXPECT_EQ(metadata.find("x-request-id")->second, result.started.request_id());
}

TEST_F(GrpcServiceTest, ALongRequestIdIsRefused) {
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", std::string(129, 'i'));
  const StreamResult result = ReadAll(*stub_->Generate(&context, TextRequest("x")));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(result.status.error_message(), StartsWith("x-request-id: "));
}

TEST_F(GrpcServiceTest, TokenizeAndDetokenizeAreInverse) {
  v1::TokenizeRequest request;
  request.set_text("abc");
  v1::TokenizeResponse ids;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->Tokenize(&context, request, &ids).ok());
  EXPECT_THAT(ids.token_ids(), ElementsAre('a', 'b', 'c'));

  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = ids.token_ids();
  v1::DetokenizeResponse text;
  grpc::ClientContext second;
  ASSERT_TRUE(stub_->Detokenize(&second, back, &text).ok());
  EXPECT_EQ(text.text(), "abc");
}

TEST_F(GrpcServiceTest, TokenizeRefusesByField) {
  v1::TokenizeRequest request;
  v1::TokenizeResponse ids;
  grpc::ClientContext context;
  grpc::Status status = stub_->Tokenize(&context, request, &ids);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), StartsWith("input: "));

  request.mutable_chat()->add_messages()->GetReflection();
  auto* message = request.mutable_chat()->mutable_messages(0);
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(9, 1);
  grpc::ClientContext second;
  status = stub_->Tokenize(&second, request, &ids);
  EXPECT_THAT(status.error_message(),
              AllOf(StartsWith("chat.messages[0]: "), HasSubstr("unknown field 9")));
}

TEST_F(GrpcServiceTest, GetModelTellsAll) {
  v1::GetModelResponse model;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->GetModel(&context, {}, &model).ok());
  EXPECT_EQ(model.name(), "fake");
  EXPECT_EQ(model.architecture(), "none");
  EXPECT_EQ(model.context_length(), 100);
  EXPECT_EQ(model.vocab_size(), 1000);
  EXPECT_TRUE(model.has_chat_template());
  EXPECT_EQ(model.backend(), "cpu/fake");
  EXPECT_EQ(model.numerics_id(), "n1");
  EXPECT_THAT(model.end_token_ids(), ElementsAre(2));
  EXPECT_EQ(model.bos_token_id(), 1);
}

}  // namespace
}  // namespace renga
