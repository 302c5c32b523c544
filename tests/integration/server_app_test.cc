// A whole server: answers, overload, failures, draining, starts that fail.

#include "app/server_app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <string>
#include <vector>

#include "tests/integration/server_fixture.h"

namespace renga {
namespace {

using test::ReplayBackend;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using ServerAppTest = ServerFixture;

// ---- Answers.

TEST_F(ServerAppTest, StreamAndUnaryAndCompanyGiveTheSameAnswer) {
  StartServer();
  const Answer alone = Stream(Greedy("hello there", 40));
  ASSERT_TRUE(alone.status.ok()) << alone.status.error_message();
  EXPECT_EQ(alone.ids.size(), 40u);
  EXPECT_EQ(alone.finished.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(alone.finished.usage().completion_tokens(), 40);

  const Answer unary = Unary(Greedy("hello there", 40));
  EXPECT_EQ(unary.text, alone.text);
  EXPECT_EQ(unary.ids, alone.ids);

  std::vector<std::future<Answer>> company;
  for (int i = 0; i < 8; ++i) {
    const std::string text = i % 2 == 0 ? "hello there" : std::string(100, 'x');
    company.push_back(StreamInBackground(Greedy(text, 40)));
  }
  for (size_t i = 0; i < company.size(); ++i) {
    const Answer answer = company[i].get();
    EXPECT_TRUE(answer.status.ok());
    if (i % 2 == 0) {
      EXPECT_EQ(answer.ids, alone.ids);
    }
  }
  EXPECT_TRUE(StopServer().ok());
}

TEST_F(ServerAppTest, AChatIsAnsweredAndTokenizedAlike) {
  StartServer();
  v1::GenerateRequest request = Greedy("", 5);
  auto* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hi");
  const Answer answer = Unary(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  v1::TokenizeRequest tokenize;
  *tokenize.mutable_chat() = request.chat();
  v1::TokenizeResponse ids;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->Tokenize(&context, tokenize, &ids).ok());
  EXPECT_EQ(ids.token_ids_size(), answer.finished.usage().prompt_tokens());
  EXPECT_EQ(ids.token_ids(0), test::kTinyTurnStart);
}

TEST_F(ServerAppTest, GetModelTellsWhatIsLoaded) {
  config_.model.context = 512;
  StartServer();
  v1::GetModelResponse model;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->GetModel(&context, {}, &model).ok());
  EXPECT_EQ(model.name(), "tiny");
  EXPECT_EQ(model.context_length(), 512);
  EXPECT_EQ(model.vocab_size(), test::TinyVocabSize());
  EXPECT_TRUE(model.has_chat_template());
  EXPECT_THAT(model.backend(), StartsWith("cpu/"));
}

TEST_F(ServerAppTest, WhatCannotFitIsRefusedWithBothNumbersAndTheRestIsServed) {
  StartServer();
  const Answer refused = Stream(Greedy(std::string(5000, '?'), 1));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("1024"));
  EXPECT_TRUE(Stream(Greedy("a", 1)).status.ok());
}

// ---- Cancelling and overload.

TEST_F(ServerAppTest, ACancelledStreamFreesItsPagesAtTheNextStep) {
  StartReplay();
  replay_->HoldSteps();
  grpc::ClientContext context;
  auto stream = std::async(std::launch::async,
                           [&] { return Stream(Greedy("a long story", 900), context); });
  replay_->WaitUntilHeld();
  replay_->ReleaseSteps(3);
  replay_->WaitUntilHeld();
  context.TryCancel();
  EXPECT_EQ(stream.get().status.error_code(), grpc::StatusCode::CANCELLED);
  replay_->ReleaseAllSteps();
  Await([&] { return Metric("renga_requests_running{model=\"tiny\"}") == 0; });
  EXPECT_EQ(Metric("renga_kv_pages_used{model=\"tiny\"}"), 0);
  Await([&] {
    return Metric("renga_requests_total{model=\"tiny\",outcome=\"cancelled\"}") == 1;
  });
}

TEST_F(ServerAppTest, AFullQueueRefusesAtOnceAndTheRestIsAnswered) {
  config_.scheduler.max_queue_requests = 1;
  StartReplay();
  replay_->HoldSteps();
  auto running = StreamInBackground(Greedy("first", 3));
  replay_->WaitUntilHeld();
  // One of these waits; the other two must come back while the engine stands still.
  std::vector<std::future<Answer>> others;
  for (int i = 0; i < 3; ++i) others.push_back(StreamInBackground(Greedy("more", 3)));
  const auto back = [](const std::future<Answer>& f) {
    return f.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  Await([&] { return std::count_if(others.begin(), others.end(), back) == 2; });
  EXPECT_EQ(Metric("renga_rejections_total{model=\"tiny\",reason=\"queue_full\"}"), 2);
  replay_->ReleaseAllSteps();
  EXPECT_TRUE(running.get().status.ok());
  int refused = 0;
  for (auto& other : others) {
    const Answer answer = other.get();
    if (answer.status.ok()) continue;
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    ++refused;
  }
  EXPECT_EQ(refused, 2);
}

// ---- Health.

TEST_F(ServerAppTest, ARequestSentAtOnceAfterStartIsServed) {
  StartServer();
  EXPECT_TRUE(HealthSaysServing());
  EXPECT_TRUE(ReadyzSays200());
  EXPECT_EQ(Metric("renga_ready{model=\"tiny\"}"), 1);
  EXPECT_TRUE(Stream(Greedy("a", 1)).status.ok());
}

TEST_F(ServerAppTest, AnEngineThatStandsStillIsNotReadyButAlive) {
  config_.health.stall_ms = 20;
  StartReplay();
  Await([&] { return HealthSaysServing(); });
  replay_->HoldSteps();
  auto stuck = StreamInBackground(Greedy("a", 2));
  Await([&] { return !HealthSaysServing() && !ReadyzSays200(); });
  EXPECT_THAT(HttpGet(app_->admin_address(), "/livez"), StartsWith("HTTP/1.1 200"));
  EXPECT_GT(Metric("renga_kv_pages_capacity{model=\"tiny\"}"), 0);
  replay_->ReleaseAllSteps();
  EXPECT_TRUE(stuck.get().status.ok());
  Await([&] { return HealthSaysServing() && ReadyzSays200(); });
}

// ---- Failures of the device.

TEST_F(ServerAppTest, AStepThatFailsEndsItsRequestAlone) {
  StartReplay();
  replay_->FailStep(replay_->steps() + 1, Internal("broken"));
  const Answer failed = Stream(Greedy("a", 5));
  EXPECT_EQ(failed.status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(failed.status.error_message(), Not(HasSubstr("broken")));
  EXPECT_EQ(Stream(Greedy("a", 5)).ids.size(), 5u);
}

TEST_F(ServerAppTest, ALostDeviceEndsTheServerWithAnError) {
  StartReplay();
  replay_->FailStep(replay_->steps() + 1, Unavailable("gone"));
  const Answer failed = Stream(Greedy("a", 5));
  EXPECT_EQ(failed.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(failed.status.error_message(), Not(HasSubstr("gone")));
  running_.join();
  replay_ = nullptr;
  EXPECT_EQ(ended_.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(app_->Ready());
}

// ---- Draining.

TEST_F(ServerAppTest, DrainFinishesWhatRunsAndWaitsAndRefusesTheRest) {
  config_.scheduler.max_sequences = 2;
  StartReplay();
  const Answer reference = Stream(Greedy("story", 20));
  const std::string encoded = "renga_tokenize_seconds_count{model=\"tiny\"}";
  const double before = Metric(encoded);
  replay_->HoldSteps();
  std::vector<std::future<Answer>> accepted;  // Two run, two wait.
  for (int i = 0; i < 4; ++i) accepted.push_back(StreamInBackground(Greedy("story", 20)));
  replay_->WaitUntilHeld();
  Await([&] { return Metric(encoded) == before + 4; });
  app_->RequestStop();
  Await([&] { return !HealthSaysServing(); });
  EXPECT_FALSE(ReadyzSays200());
  EXPECT_THAT(HttpGet(app_->admin_address(), "/livez"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(Stream(Greedy("late", 1)).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  replay_->ReleaseAllSteps();
  for (auto& answer : accepted) {
    const Answer got = answer.get();
    EXPECT_TRUE(got.status.ok()) << got.status.error_message();
    EXPECT_EQ(got.ids, reference.ids);
  }
  EXPECT_TRUE(StopServer().ok());
}

TEST_F(ServerAppTest, StreamsThatOutliveTheDrainTimeEndWithAnError) {
  model_options_.context = 200'000;
  ASSERT_TRUE(test::WriteTinyModel(model_options_, model_path_));
  config_.drain.timeout_ms = 1;
  config_.kv.pool_bytes = int64_t{1} << 30;
  StartReplay(ReplayBackend::Always({test::kTinyFirstByte + 'x'}));
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Greedy("endless", 190'000));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  app_->RequestStop();
  while (reader->Read(&message)) EXPECT_FALSE(message.has_finished());
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(StopServer().ok());
}

// ---- Starts that fail.

TEST_F(ServerAppTest, APortInUseIsNamedBeforeTheModelIsOpened) {
  StartServer();
  Config config = config_;
  config.model.path = "/nowhere.gguf";
  config.grpc.address = app_->grpc_address();
  const Status grpc_taken = ServerApp(config).Start();
  EXPECT_THAT(grpc_taken.ToString(), HasSubstr(app_->grpc_address()));
  config.grpc.address = "127.0.0.1:0";
  config.admin.address = app_->admin_address();
  const Status admin_taken = ServerApp(config).Start();
  EXPECT_THAT(admin_taken.ToString(), HasSubstr(app_->admin_address()));
  config.admin.address = "127.0.0.1:0";
  config.gateway.address = app_->gateway_address();
  const Status gateway_taken = ServerApp(config).Start();
  EXPECT_THAT(gateway_taken.ToString(), HasSubstr(app_->gateway_address()));
}

TEST_F(ServerAppTest, EachBadStartIsNamed) {
  const auto start = [&](auto change) {
    Config config = config_;
    change(config);
    return ServerApp(config).Start().ToString();
  };
  EXPECT_THAT(start([](Config& c) { c.model.path = ""; }), HasSubstr("model.path"));
  EXPECT_THAT(start([](Config& c) { c.model.path = "/nowhere.gguf"; }),
              HasSubstr("model.path: /nowhere.gguf: "));
  EXPECT_THAT(start([](Config& c) { c.model.context = 1; }),
              HasSubstr("model.context: is 1"));
  EXPECT_THAT(
      start([](Config& c) { c.model.context = 5000; }),
      testing::AllOf(HasSubstr("model.context"), HasSubstr("5000"), HasSubstr("1024")));
  EXPECT_THAT(start([](Config& c) { c.kv.pool_bytes = 1; }), HasSubstr("kv.pool_bytes"));
}

TEST_F(ServerAppTest, AStopDuringTheStartIsObeyed) {
  ServerApp app(config_);
  app.RequestStop();
  EXPECT_TRUE(app.Start().ok());
  EXPECT_TRUE(app.Run().ok());
}

// ---- What must not leak.

TEST_F(ServerAppTest, NoPromptStandsInLogsMetricsOrErrors) {
  testing::internal::CaptureStderr();
  ASSERT_TRUE(ConfigureLog("trace", "text").ok());
  StartServer();
  std::string seen;
  v1::GenerateRequest request = Greedy("marker ZQX-17", 3);
  EXPECT_TRUE(Stream(request).status.ok());
  request.add_stop("");
  seen += Stream(request).status.error_message();
  request = Greedy("", 3);
  request.mutable_chat()->add_messages()->set_content("ZQX-17");
  seen += Stream(request).status.error_message();
  seen += Stream(Greedy("ZQX-17" + std::string(5000, '?'), 1)).status.error_message();
  seen += HttpGet(app_->admin_address(), "/metrics");
  EXPECT_TRUE(StopServer().ok());
  seen += testing::internal::GetCapturedStderr();
  EXPECT_THAT(seen, HasSubstr("listening"));
  EXPECT_THAT(seen, Not(HasSubstr("ZQX-17")));
}

}  // namespace
}  // namespace renga
