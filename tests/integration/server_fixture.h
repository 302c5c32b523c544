// ServerFixture: a whole server in this process, on free ports, over a tiny model: its
// answers come from the real CPU backend, or from a ReplayBackend that a test can hold
// and break. With clients for each of its ports.
//
// Thread safety: the clients (Stream, Unary, HttpGet and what is built on them) may be
// used from any thread.

#pragma once

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/server_app.h"
#include "base/log.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "renga/v1/admin.grpc.pb.h"
#include "renga/v1/inference.grpc.pb.h"
#include "tests/fakes/http_connection.h"
#include "tests/models/replay_backend.h"
#include "tests/models/tiny_model.h"
#include "tests/models/tiny_vocab.h"

namespace renga {

struct Answer {
  grpc::Status status;
  std::string text;
  std::vector<int32_t> ids;
  v1::Finished finished;
};

class ServerFixture : public testing::Test {
 protected:
  void SetUp() override {
    model_path_ = testing::TempDir() + "renga_server_" +
                  testing::UnitTest::GetInstance()->current_test_info()->name() + ".gguf";
    ASSERT_TRUE(test::WriteTinyModel(model_options_, model_path_));
    config_.model.path = model_path_;
    config_.grpc.address = "127.0.0.1:0";
    config_.gateway.address = "127.0.0.1:0";
    config_.admin.address = "127.0.0.1:0";
    config_.admin.grpc_address = "127.0.0.1:0";
    config_.device.threads = 1;
    config_.kv.pool_bytes = 16 << 20;
    config_.drain.timeout_ms = 60'000;
    ASSERT_TRUE(ConfigureLog("error", "text").ok());
  }

  void TearDown() override {
    if (replay_ != nullptr) replay_->ReleaseAllSteps();
    if (app_ != nullptr) {
      EXPECT_TRUE(StopServer().ok());
    }
    std::remove(model_path_.c_str());
  }

  void StartServer() {
    app_ = std::make_unique<ServerApp>(config_);
    Started();
  }

  // The same on a device that says what the script says.
  void StartReplay(test::ReplayBackend::Script script) {
    app_ = std::make_unique<ServerApp>(
        config_,
        [this, script](const DeviceSettings&) -> StatusOr<std::unique_ptr<Backend>> {
          auto backend = std::make_unique<test::ReplayBackend>(
              script, test::ReplayOptions{.context = model_options_.context});
          replay_ = backend.get();
          return std::unique_ptr<Backend>(std::move(backend));
        });
    Started();
  }
  void StartReplay() {
    StartReplay(test::ReplayBackend::Hash(test::TinyVocabSize(), test::kTinyFirstByte));
  }

  void Started() {
    const Status started = app_->Start();
    ASSERT_TRUE(started.ok()) << started.ToString();
    running_ = std::thread([this] { ended_ = app_->Run(); });
    Connect();
  }

  void Connect() {
    const std::shared_ptr<grpc::Channel> channel = ChannelTo(app_->grpc_address());
    stub_ = v1::Inference::NewStub(channel);
    health_ = grpc::health::v1::Health::NewStub(channel);
    admin_ = v1::Admin::NewStub(ChannelTo(app_->admin_grpc_address()));
  }
  static std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                     arguments);
  }

  // Asks the server to stop and returns what Run said.
  Status StopServer() {
    app_->RequestStop();
    if (!running_.joinable()) return OkStatus();
    running_.join();
    replay_ = nullptr;
    app_.reset();
    return ended_;
  }

  static v1::GenerateRequest Greedy(const std::string& text, int64_t max_tokens) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.mutable_sampling()->set_temperature(0.0f);
    request.set_max_tokens(max_tokens);
    request.set_ignore_end_token(true);
    return request;
  }

  Answer Stream(const v1::GenerateRequest& request, grpc::ClientContext& context) {
    Answer answer;
    auto reader = stub_->Generate(&context, request);
    for (v1::GenerateResponse message; reader->Read(&message);) {
      if (message.has_finished()) answer.finished = message.finished();
      if (!message.has_chunk()) continue;
      answer.text += message.chunk().text();
      answer.ids.insert(answer.ids.end(), message.chunk().token_ids().begin(),
                        message.chunk().token_ids().end());
    }
    answer.status = reader->Finish();
    return answer;
  }
  Answer Stream(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    return Stream(request, context);
  }
  std::future<Answer> StreamInBackground(const v1::GenerateRequest& request) {
    return std::async(std::launch::async, [this, request] { return Stream(request); });
  }

  Answer Unary(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    v1::GenerateUnaryResponse response;
    Answer answer;
    answer.status = stub_->GenerateUnary(&context, request, &response);
    answer.text = response.text();
    answer.ids = {response.token_ids().begin(), response.token_ids().end()};
    answer.finished = response.finished();
    return answer;
  }

  bool HealthSaysServing() {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status = health_->Check(&context, {}, &response);
    return status.ok() &&
           response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  }
  bool ReadyzSays200() {
    return HttpGet(app_->admin_address(), "/readyz").starts_with("HTTP/1.1 200");
  }
  std::string Metrics() { return HttpGet(app_->admin_address(), "/metrics"); }
  // The value of the one sample `series`, labels included; -1: there is none.
  double Metric(const std::string& series) {
    const std::string text = Metrics();
    const size_t at = text.find("\n" + series + ' ');
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
  }
  // The sum of all samples of a metric; -1: there is none.
  double SumOf(const std::string& metric) {
    std::istringstream lines(Metrics());
    double sum = 0.0;
    bool found = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.substr(0, line.find_first_of("{ ")) != metric) continue;
      sum += std::stod(line.substr(line.rfind(' ') + 1));
      found = true;
    }
    return found ? sum : -1.0;
  }

  // Looks until it is so; a test that never gets there runs into ctest's timeout.
  template <class Predicate>
  static void Await(Predicate predicate) {
    while (!predicate()) std::this_thread::yield();
  }

  test::TinyModelOptions model_options_;
  std::string model_path_;
  Config config_;
  test::ReplayBackend* replay_ = nullptr;  // The app's.
  std::unique_ptr<ServerApp> app_;
  std::thread running_;
  Status ended_;  // Of Run; read after running_ was joined.
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

}  // namespace renga
