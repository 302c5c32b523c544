#include "transport/grpc_service.h"

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <future>
#include <thread>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/transport/server_fixture.h"

namespace renga {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
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
  request.mutable_sampling()->set_typical_p(0.75f);
  request.mutable_sampling()->set_repetition_penalty(1.5f);
  request.mutable_sampling()->set_presence_penalty(-1.0f);
  request.mutable_sampling()->set_frequency_penalty(2.0f);
  auto& bias = *request.mutable_sampling()->add_logit_bias();
  bias.set_token_id(12);
  bias.set_bias(-100.0f);
  request.set_min_tokens(int64_t{1} << 41);
  request.set_n(3);
  request.set_logprobs(2);
  request.set_prompt_logprobs(1);
  request.set_echo(true);
  request.set_priority(v1::PRIORITY_LOW);
  request.set_cache_salt("salt");
  request.set_no_cache(true);
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
  EXPECT_EQ(got.sampling.typical_p, 0.75f);
  EXPECT_EQ(got.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(got.sampling.presence_penalty, -1.0f);
  EXPECT_EQ(got.sampling.frequency_penalty, 2.0f);
  ASSERT_EQ(got.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(got.sampling.logit_bias[0].token, 12);
  EXPECT_EQ(got.sampling.logit_bias[0].bias, -100.0f);
  EXPECT_EQ(got.min_tokens, int64_t{1} << 41);
  EXPECT_EQ(got.n, 3);
  EXPECT_EQ(got.logprobs, 2);
  EXPECT_EQ(got.prompt_logprobs, 1);
  EXPECT_TRUE(got.echo);
  EXPECT_EQ(got.priority, Priority::kLow);
  EXPECT_EQ(got.cache_salt, "salt");
  EXPECT_FALSE(got.use_prefix_cache);
  EXPECT_EQ(got.tenant, "");
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

TEST_F(GrpcServiceTest, OfTwoDeadlinesTheEarlierOneCounts) {
  const struct {
    std::chrono::minutes call;
    std::chrono::minutes field;
    std::chrono::minutes earlier;
  } cases[] = {
      {std::chrono::minutes(600), std::chrono::minutes(60), std::chrono::minutes(60)},
      {std::chrono::minutes(60), std::chrono::minutes(600), std::chrono::minutes(60)}};
  for (const auto& c : cases) {
    const auto before = std::chrono::steady_clock::now();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + c.call);
    v1::GenerateRequest request = TextRequest("x");
    request.set_deadline_ms(std::chrono::milliseconds(c.field).count());
    ReadAll(*stub_->Generate(&context, request));
    const auto deadline = service_.last_request().deadline;
    ASSERT_TRUE(deadline.has_value());
    EXPECT_GT(*deadline, before + c.earlier - std::chrono::minutes(1));
    EXPECT_LT(*deadline,
              std::chrono::steady_clock::now() + c.earlier + std::chrono::minutes(1));
  }
}

TEST_F(GrpcServiceTest, DeadlineMsCountsFromArrivalToTheMillisecond) {
  v1::GenerateRequest request = TextRequest("x");
  request.set_deadline_ms(86'400'000);
  ASSERT_TRUE(Stream(request).status.ok());
  const GenerateRequest got = service_.last_request();
  EXPECT_EQ(got.deadline, got.arrival + std::chrono::hours(24));
}

TEST_F(GrpcServiceTest, ADeadlineInTheRequestEndsIt) {
  service_.script = [](const GenerateRequest&) {
    return FakeGenerationService::Script{.silent = true};
  };
  v1::GenerateRequest request = TextRequest("x");
  request.set_deadline_ms(20);
  EXPECT_EQ(Stream(request).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(GrpcServiceTest, ARefusalForOverloadTellsTheClientWhenToComeBack) {
  service_.script = [](const GenerateRequest&) {
    return FakeGenerationService::Script{
        .refusal =
            ResourceExhausted("full").WithRetryAfter(std::chrono::milliseconds(2500))};
  };
  v1::GenerateUnaryResponse response;
  for (const grpc::Status& status :
       {Stream(TextRequest("x")).status, Unary(TextRequest("x"), &response)}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    google::rpc::Status details;
    google::rpc::RetryInfo info;
    ASSERT_TRUE(details.ParseFromString(status.error_details()));
    ASSERT_EQ(details.details_size(), 1);
    ASSERT_TRUE(details.details(0).UnpackTo(&info));
    EXPECT_EQ(info.retry_delay().seconds(), 2);
    EXPECT_EQ(info.retry_delay().nanos(), 500'000'000);
  }
}

TEST_F(GrpcServiceTest, TheTenantOfTheHeaderReachesTheService) {
  grpc::ClientContext context;
  context.AddMetadata("x-tenant-id", "team a");
  ASSERT_TRUE(ReadAll(*stub_->Generate(&context, TextRequest("x"))).status.ok());
  EXPECT_EQ(service_.last_request().tenant, "team a");
}

TEST_F(GrpcServiceTest, ALongTenantIsRefusedByName) {
  grpc::ClientContext context;
  context.AddMetadata("x-tenant-id", std::string(129, 't'));
  const grpc::Status status =
      ReadAll(*stub_->Generate(&context, TextRequest("x"))).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), StartsWith("x-tenant-id: "));
  EXPECT_EQ(service_.counts().started, 0);
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
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(20, 1);
  const StreamResult result = Stream(request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(result.status.error_message(),
              HasSubstr("unknown field 20 of renga.v1.Gen"));
  v1::GenerateUnaryResponse response;
  EXPECT_EQ(Unary(request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(service_.counts().started, 0);
}

TEST_F(GrpcServiceTest, TextThatIsNotUtf8IsRefusedByField) {
  v1::GenerateRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(2, "\xff");
  const StreamResult result = Stream(request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(result.status.error_message(), "text: is not UTF-8");
}

// The service counts what reaches it; the fake one counts nothing.
TEST_F(GrpcServiceTest, WhatNeverReachesTheServiceIsCountedAsRefused) {
  v1::GenerateRequest best_of = TextRequest("x");
  best_of.set_best_of(2);
  v1::GenerateUnaryResponse response;
  EXPECT_EQ(Stream(best_of).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Unary({}, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(Stream(TextRequest("x")).status.ok());
  EXPECT_THAT(metrics_.Serialize(),
              AllOf(ContainsRegex("rejections_total.*\"bad_request\"} 2\n"),
                    ContainsRegex("rejections_total.*\"draining\"} 0\n")));
  server_->Drain(std::chrono::steady_clock::now());
  EXPECT_EQ(Stream(TextRequest("x")).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(metrics_.Serialize(),
              AllOf(ContainsRegex("rejections_total.*\"bad_request\"} 2\n"),
                    ContainsRegex("rejections_total.*\"draining\"} 1\n"),
                    ContainsRegex("requests_total.*\"rejected\"} 3\n")));
  EXPECT_EQ(metrics_.requests(), 3);
  // A client may have its status a moment before the call is over.
  for (int i = 0; i < 10'000 && server_->active_calls() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(server_->active_calls(), 0);
}

// As one that is cut before its message has arrived.
TEST_F(GrpcServiceTest, ACallWithoutAMessageIsNoRequest) {
  grpc::GenericStub stub(NewChannel({}));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, "/renga.v1.Inference/Generate", &queue);
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  call->WritesDone(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  call->Finish(&status, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(metrics_.requests(), 0);
  EXPECT_EQ(service_.counts().started, 0);
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

// ---- GetLoad and Cancel -------------------------------------------------------------

class CancelTest : public ServerFixture {
 protected:
  using Counts = FakeGenerationService::Counts;

  void SetUp() override {
    ServerFixture::SetUp();
    service_.script = [](const GenerateRequest&) {
      return FakeGenerationService::Script{.silent = true};
    };
  }

  // A call that waits, as tenant `tenant` under the name `name` ("": none).
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> Begin(
      grpc::ClientContext& context, const std::string& tenant, const std::string& name) {
    const int64_t before = service_.counts().running;
    if (!tenant.empty()) context.AddMetadata("x-tenant-id", tenant);
    if (!name.empty()) context.AddMetadata("x-request-id", name);
    auto reader = stub_->Generate(&context, TextRequest("x"));
    service_.WaitFor([before](const Counts& c) { return c.running == before + 1; });
    return reader;
  }

  grpc::Status Cancel(const std::string& tenant, const std::vector<std::string>& ids,
                      int64_t* cancelled) {
    grpc::ClientContext context;
    if (!tenant.empty()) context.AddMetadata("x-tenant-id", tenant);
    v1::CancelRequest request;
    for (const std::string& id : ids) request.add_request_ids(id);
    v1::CancelResponse response;
    const grpc::Status status = stub_->Cancel(&context, request, &response);
    *cancelled = response.cancelled();
    return status;
  }
  int64_t Cancelled(const std::string& tenant, const std::vector<std::string>& ids) {
    int64_t cancelled = -1;
    const grpc::Status status = Cancel(tenant, ids, &cancelled);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return cancelled;
  }
};

TEST_F(CancelTest, EndsACallByTheClientsNameAndByTheServersId) {
  grpc::ClientContext named, unnamed;
  auto first = Begin(named, "", "mine");
  auto second = Begin(unnamed, "", "");
  const auto id = std::to_string(static_cast<uint64_t>(service_.last_request().id));
  EXPECT_EQ(Cancelled("", {"mine"}), 1);
  EXPECT_EQ(ReadAll(*first).status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(service_.counts().running, 1);
  EXPECT_EQ(Cancelled("", {id}), 1);
  EXPECT_EQ(ReadAll(*second).status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(CancelTest, EndsAllCallsThatShareANameAndCountsEachOnce) {
  grpc::ClientContext contexts[3];
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> calls;
  for (grpc::ClientContext& context : contexts) {
    calls.push_back(Begin(context, "", "same"));
  }
  const auto id = std::to_string(static_cast<uint64_t>(service_.last_request().id));
  EXPECT_EQ(Cancelled("", {"same", "same", id, "nobody"}), 3);
  for (auto& call : calls) {
    EXPECT_EQ(ReadAll(*call).status.error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(CancelTest, EndsAUnaryCall) {
  grpc::Status status;
  std::thread calling([&] {
    grpc::ClientContext context;
    context.AddMetadata("x-request-id", "unary");
    v1::GenerateUnaryResponse response;
    status = stub_->GenerateUnary(&context, TextRequest("x"), &response);
  });
  service_.WaitFor([](const Counts& c) { return c.running == 1; });
  EXPECT_EQ(Cancelled("", {"unary"}), 1);
  calling.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(CancelTest, DoesNotReachTheCallsOfAnotherTenant) {
  grpc::ClientContext context;
  auto call = Begin(context, "a", "mine");
  const auto id = std::to_string(static_cast<uint64_t>(service_.last_request().id));
  EXPECT_EQ(Cancelled("b", {"mine", id}), 0);
  EXPECT_EQ(Cancelled("", {"mine", id}), 0);
  EXPECT_EQ(service_.counts().cancels, 0);
  EXPECT_EQ(Cancelled("a", {"mine"}), 1);
  EXPECT_EQ(ReadAll(*call).status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(CancelTest, ANameThatNamesNothingAnyMoreIsNoError) {
  grpc::ClientContext context;
  auto call = Begin(context, "", "mine");
  EXPECT_EQ(Cancelled("", {"mine"}), 1);
  ReadAll(*call);
  EXPECT_EQ(Cancelled("", {"mine", "", "other"}), 0);
}

TEST_F(CancelTest, AnAnswerThatIsCompleteButNotReadIsUnderWayNoMore) {
  service_.script = [](const GenerateRequest&) {
    return FakeGenerationService::Script{.tokens = 30, .text = std::string(16384, 'x')};
  };
  grpc::ChannelArguments small_window;
  small_window.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  small_window.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1024);
  stub_ = NewStub(small_window);
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "mine");
  auto call = stub_->Generate(&context, TextRequest("x"));
  service_.WaitFor([](const Counts& c) { return c.done == 1; });
  EXPECT_EQ(server_->active_calls(), 1);
  EXPECT_EQ(Cancelled("", {"mine"}), 0);
  EXPECT_TRUE(ReadAll(*call).status.ok());
}

TEST_F(CancelTest, WantsOneTo1024Names) {
  int64_t cancelled = 0;
  for (const size_t count : {0, 1025}) {
    const grpc::Status status =
        Cancel("", std::vector<std::string>(count, "x"), &cancelled);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), StartsWith("request_ids: "));
  }
  EXPECT_EQ(Cancelled("", std::vector<std::string>(1024, "x")), 0);
}

TEST_F(CancelTest, WorksWhileTheServerDrains) {
  grpc::ClientContext context;
  auto call = Begin(context, "", "mine");
  EXPECT_FALSE(server_->Drain(std::chrono::steady_clock::now()));
  EXPECT_EQ(Cancelled("", {"mine"}), 1);
  EXPECT_EQ(ReadAll(*call).status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(server_->Drain(std::chrono::steady_clock::now() + std::chrono::hours(1)));
}

// A cancel that comes while the request is on its way into the service.
TEST_F(CancelTest, IsNotLostBeforeTheServiceKnowsTheRequest) {
  bool began = false;
  service_.script = [&](const GenerateRequest&) {
    // In the handler's thread, with the request not yet among the running ones. (A second
    // gRPC thread answers the Cancel.)
    if (!std::exchange(began, true)) {
      EXPECT_EQ(Cancelled("", {"mine"}), 1);
    }
    return FakeGenerationService::Script{.silent = true};
  };
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "mine");
  EXPECT_EQ(ReadAll(*stub_->Generate(&context, TextRequest("x"))).status.error_code(),
            grpc::StatusCode::CANCELLED);
}

TEST_F(GrpcServiceTest, GetLoadAndCancelDoNotWaitBehindATokenize) {
  Mutex mutex;
  CondVar changed;
  bool inside = false;
  bool go_on = false;
  service_.on_tokenize = [&] {
    MutexLock lock(mutex);
    inside = true;
    changed.NotifyAll();
    while (!go_on) changed.Wait(mutex);
  };
  grpc::Status tokenized;
  std::thread calling([&] {
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    request.set_text("x");
    v1::TokenizeResponse response;
    tokenized = stub_->Tokenize(&context, request, &response);
  });
  {
    MutexLock lock(mutex);
    while (!inside) changed.Wait(mutex);
  }
  grpc::ClientContext load_context, cancel_context;
  v1::GetLoadResponse load;
  EXPECT_TRUE(stub_->GetLoad(&load_context, {}, &load).ok());
  v1::CancelRequest cancel;
  cancel.add_request_ids("x");
  v1::CancelResponse cancelled;
  EXPECT_TRUE(stub_->Cancel(&cancel_context, cancel, &cancelled).ok());
  {
    MutexLock lock(mutex);
    go_on = true;
    changed.NotifyAll();
  }
  calling.join();
  EXPECT_TRUE(tokenized.ok());
}

TEST_F(GrpcServiceTest, TooManyTokenizesAreToldWhenToComeBack) {
  constexpr size_t kCalls = 300;  // 256 wait, and one runs.
  std::promise<void> go_on;
  service_.on_tokenize = [held = go_on.get_future().share()] { held.wait(); };
  struct Call {
    grpc::ClientContext context;
    v1::TokenizeResponse response;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::TokenizeResponse>> reader;
  };
  std::vector<Call> calls(kCalls);
  grpc::CompletionQueue queue;
  v1::TokenizeRequest request;
  request.set_text("x");
  for (Call& call : calls) {
    call.reader = stub_->AsyncTokenize(&call.context, request, &queue);
    call.reader->Finish(&call.response, &call.status, &call);
  }
  size_t refused = 0;
  for (size_t ended = 0; ended < kCalls; ++ended) {
    if (ended == kCalls - 257) go_on.set_value();  // The others are waiting for it.
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    const grpc::Status& status = static_cast<Call*>(tag)->status;
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    google::rpc::Status details;
    google::rpc::RetryInfo info;
    ASSERT_TRUE(details.ParseFromString(status.error_details()));
    ASSERT_EQ(details.details_size(), 1);
    ASSERT_TRUE(details.details(0).UnpackTo(&info));
    EXPECT_GT(info.retry_delay().nanos(), 0);
  }
  EXPECT_GE(refused, kCalls - 257);
}

TEST_F(GrpcServiceTest, GetLoadTellsAllAndAlsoWhileTheServerDrains) {
  service_.load = {.ready = true, .running = 3, .pages_total = 12, .busy_share = 0.25};
  for (int i = 0; i < 2; ++i) {
    v1::GetLoadResponse load;
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->GetLoad(&context, {}, &load).ok());
    EXPECT_TRUE(load.ready());
    EXPECT_EQ(load.running(), 3);
    EXPECT_EQ(load.kv_pages_total(), 12);
    EXPECT_EQ(load.busy_share(), 0.25);
    server_->Drain(std::chrono::steady_clock::now());
  }
}

}  // namespace
}  // namespace renga
