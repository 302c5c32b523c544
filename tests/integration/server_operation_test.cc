// What an operator sees and does: slow starts, probes under load, metrics after aborts,
// the Admin service, keys.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/server_fixture.h"

namespace renga {
namespace {

using test::ReplayBackend;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ServerOperationTest : public ServerFixture {
 protected:
  v1::MemoryReportResponse MemoryReport() {
    grpc::ClientContext context;
    v1::MemoryReportResponse report;
    const grpc::Status status = admin_->MemoryReport(&context, {}, &report);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return report;
  }
  static int64_t Bytes(const v1::MemoryReportResponse& report,
                       const std::string& purpose) {
    for (const v1::MemoryRow& row : report.rows()) {
      if (row.purpose() == purpose) return row.bytes();
    }
    ADD_FAILURE() << purpose;
    return -1;
  }
  bool EverythingIsIdle() {
    for (const char* gauge : {"renga_requests_running", "renga_requests_waiting",
                              "renga_queue_tokens", "renga_kv_pages_used"}) {
      if (SumOf(gauge) != 0.0) return false;
    }
    return true;
  }
  std::string WriteKeys(const std::string& text) {
    const std::string path = model_path_ + ".keys";
    std::ofstream(path) << text;
    return path;
  }
  grpc::Status CallWith(const std::string& key) {
    grpc::ClientContext context;
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    return Stream(Greedy("a", 1), context).status;
  }
};

// ---- Health.

TEST_F(ServerOperationTest, ASlowStartIsAliveButNotReady) {
  std::promise<void> loading;
  std::promise<void> go_on;
  app_ = std::make_unique<ServerApp>(
      config_, [&](const DeviceSettings&) -> StatusOr<std::unique_ptr<Backend>> {
        loading.set_value();
        go_on.get_future().wait();
        return std::unique_ptr<Backend>(std::make_unique<ReplayBackend>(
            ReplayBackend::Hash(test::TinyVocabSize(), test::kTinyFirstByte),
            test::ReplayOptions{.context = model_options_.context}));
      });
  auto started = std::async(std::launch::async, [&] { return app_->Start(); });
  loading.get_future().wait();
  Connect();
  EXPECT_THAT(HttpGet(app_->admin_address(), "/livez"), StartsWith("HTTP/1.1 200"));
  EXPECT_FALSE(ReadyzSays200());
  EXPECT_FALSE(HealthSaysServing());
  EXPECT_THAT(Metrics(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(Stream(Greedy("a", 1)).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext context;
  v1::MemoryReportResponse report;
  EXPECT_EQ(admin_->MemoryReport(&context, {}, &report).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  go_on.set_value();
  EXPECT_TRUE(started.get().ok());
  // The first request after the first "ready" is served.
  EXPECT_TRUE(ReadyzSays200());
  EXPECT_TRUE(HealthSaysServing());
  EXPECT_TRUE(Stream(Greedy("a", 1)).status.ok());
  running_ = std::thread([this] { ended_ = app_->Run(); });
}

TEST_F(ServerOperationTest, AFullQueueStaysAliveAndReady) {
  config_.scheduler.max_queue_requests = 1;
  StartReplay();
  Await([&] { return HealthSaysServing(); });
  replay_->HoldSteps();
  std::vector<std::future<Answer>> asked;
  asked.push_back(StreamInBackground(Greedy("first", 3)));
  replay_->WaitUntilHeld();
  for (int i = 0; i < 3; ++i) asked.push_back(StreamInBackground(Greedy("more", 3)));
  Await([&] { return SumOf("renga_rejections_total") == 2; });
  EXPECT_TRUE(HealthSaysServing());
  EXPECT_TRUE(ReadyzSays200());
  EXPECT_THAT(HttpGet(app_->admin_address(), "/livez"), StartsWith("HTTP/1.1 200"));
  replay_->ReleaseAllSteps();
  for (auto& answer : asked) answer.get();
}

// The aim is 100 ms; ten times that is asserted, the time itself is printed.
TEST_F(ServerOperationTest, ProbesAnswerWhileALongPrefillRuns) {
  model_options_.context = 8192;
  model_options_.dim = 256;
  model_options_.heads = 16;
  model_options_.ffn = 512;
  ASSERT_TRUE(test::WriteTinyModel(model_options_, model_path_));
  config_.kv.pool_bytes = 256 << 20;
  config_.health.stall_ms = 600'000;  // A slow machine takes long for one step.
  StartServer();
  v1::GenerateRequest request = Greedy("", 1);
  for (int i = 0; i < 7372; ++i) {
    request.mutable_token_ids()->add_ids(test::kTinyFirstByte + i % 250);
  }
  auto prefill = StreamInBackground(request);
  Await([&] { return SumOf("renga_requests_running") == 1; });
  std::chrono::nanoseconds longest{0};
  int looks = 0;
  while (prefill.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(HttpGet(app_->admin_address(), "/livez"), StartsWith("HTTP/1.1 200"));
    EXPECT_TRUE(ReadyzSays200());
    EXPECT_THAT(Metrics(), StartsWith("HTTP/1.1 200"));
    EXPECT_TRUE(HealthSaysServing());
    longest = std::max(longest, std::chrono::steady_clock::now() - begin);
    ++looks;
  }
  EXPECT_TRUE(prefill.get().status.ok());
  std::printf("%d rounds of four probes during a prefill, the longest took %.1f ms\n",
              looks, std::chrono::duration<double, std::milli>(longest).count());
  EXPECT_GT(looks, 0);
  EXPECT_LT(longest, std::chrono::seconds(4));
}

// ---- Metrics.

TEST_F(ServerOperationTest, GaugesReturnToIdleAfterMassAbortsAndCountersAddUp) {
  config_.scheduler.max_sequences = 16;
  StartReplay();
  replay_->HoldSteps();
  std::array<grpc::ClientContext, 50> contexts;
  std::vector<std::future<Answer>> streams;
  for (grpc::ClientContext& context : contexts) {
    streams.push_back(std::async(std::launch::async, [&] {
      return Stream(Greedy("a long story", 900), context);
    }));
  }
  Await([&] {
    return SumOf("renga_tokenize_seconds_count") == 50.0 &&
           SumOf("renga_requests_running") + SumOf("renga_requests_waiting") > 0.0;
  });
  replay_->ReleaseSteps(5);
  replay_->WaitUntilHeld();
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (auto& stream : streams) {
    EXPECT_EQ(stream.get().status.error_code(), grpc::StatusCode::CANCELLED);
  }
  replay_->ReleaseAllSteps();
  // Without any new request.
  Await([&] { return EverythingIsIdle(); });
  Await([&] {
    return Metric("renga_requests_total{model=\"tiny\",outcome=\"cancelled\"}") == 50;
  });
  EXPECT_EQ(SumOf("renga_requests_total"), 50);
  EXPECT_EQ(SumOf("renga_cancellations_total"), 50);

  const double generated = SumOf("renga_generated_tokens_total");
  int64_t completion = 0;
  int64_t prompt = 0;
  const double prompts = SumOf("renga_prompt_tokens_total");
  for (int i = 0; i < 10; ++i) {
    v1::GenerateRequest request = Greedy("two answers", 7);
    request.set_n(2);
    const Answer answer = Stream(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    completion += answer.finished.usage().completion_tokens();
    prompt += answer.finished.usage().prompt_tokens();
  }
  EXPECT_EQ(completion, 10 * 2 * 7);
  Await([&] { return SumOf("renga_requests_total") == 60; });
  EXPECT_EQ(SumOf("renga_generated_tokens_total"), generated + 140);
  EXPECT_EQ(SumOf("renga_prompt_tokens_total"), prompts + static_cast<double>(prompt));
  Await([&] { return EverythingIsIdle(); });
}

// ---- Admin.

TEST_F(ServerOperationTest, TheMemoryReportShowsWhatIsHeldAndWhatIsGivenBack) {
  StartServer();
  const v1::MemoryReportResponse before = MemoryReport();
  EXPECT_GT(Bytes(before, "weights"), 0);
  EXPECT_GE(Bytes(before, "kv_pool"), before.kv_pages_total() * before.kv_page_bytes());
  EXPECT_GT(Bytes(before, "activations"), 0);
  EXPECT_GT(Bytes(before, "process"), 1 << 20);
  EXPECT_THAT(before.table(), HasSubstr("weights"));
  EXPECT_EQ(before.kv_pages_used(), 0);
  for (int i = 0; i < 50; ++i) {
    v1::GenerateRequest request = Greedy("prompt " + std::to_string(i), 5);
    request.set_n(1 + i % 3);
    EXPECT_TRUE(Stream(request).status.ok());
  }
  v1::MemoryReportResponse after;
  Await([&] {
    after = MemoryReport();
    return Bytes(after, "requests") == 0 && after.kv_pages_used() == 0;
  });
  EXPECT_GT(after.kv_pages_cached(), 0);
  for (const char* fixed : {"weights", "kv_pool", "activations", "other"}) {
    EXPECT_EQ(Bytes(after, fixed), Bytes(before, fixed)) << fixed;
  }
  for (const v1::MemoryRow& row : after.rows()) EXPECT_FALSE(row.leak_suspected());
}

TEST_F(ServerOperationTest, AFlushGivesUpTheCacheAndTheAnswerStaysTheSame) {
  StartServer();
  const v1::GenerateRequest request = Greedy(std::string(200, 'x'), 5);
  const Answer cold = Stream(request);
  EXPECT_EQ(cold.finished.usage().cached_tokens(), 0);
  const Answer hit = Stream(request);
  EXPECT_GT(hit.finished.usage().cached_tokens(), 0);
  EXPECT_EQ(hit.ids, cold.ids);
  // Both requests' pages have come to rest when no sequence holds any.
  v1::MemoryReportResponse report;
  Await([&] {
    report = MemoryReport();
    return report.kv_pages_used() == 0 && report.kv_pages_cached() > 0;
  });
  const int64_t cached = report.kv_pages_cached();
  grpc::ClientContext context;
  v1::FlushCacheResponse flushed;
  ASSERT_TRUE(admin_->FlushCache(&context, {}, &flushed).ok());
  EXPECT_EQ(flushed.pages(), cached);
  Await([&] { return MemoryReport().kv_pages_cached() == 0; });
  const Answer again = Stream(request);
  EXPECT_EQ(again.finished.usage().cached_tokens(), 0);
  EXPECT_EQ(again.ids, cold.ids);
}

TEST_F(ServerOperationTest, WithoutAPrefixCacheNothingIsKept) {
  config_.kv.prefix_cache = false;
  StartServer();
  const v1::GenerateRequest request = Greedy(std::string(200, 'x'), 5);
  const Answer first = Stream(request);
  const Answer second = Stream(request);
  EXPECT_EQ(second.finished.usage().cached_tokens(), 0);
  EXPECT_EQ(second.ids, first.ids);
  EXPECT_EQ(MemoryReport().kv_pages_cached(), 0);
}

TEST_F(ServerOperationTest, ADrainByAdminFinishesWhatRunsAndEndsTheServer) {
  StartReplay();
  const Answer reference = Stream(Greedy("story", 20));
  replay_->HoldSteps();
  auto running = StreamInBackground(Greedy("story", 20));
  replay_->WaitUntilHeld();
  grpc::ClientContext context;
  v1::DrainResponse drained;
  ASSERT_TRUE(admin_->Drain(&context, {}, &drained).ok());
  Await([&] { return !HealthSaysServing() && !ReadyzSays200(); });
  EXPECT_EQ(Stream(Greedy("late", 1)).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  // An operator can still look.
  EXPECT_GT(MemoryReport().kv_pages_total(), 0);
  replay_->ReleaseAllSteps();
  EXPECT_EQ(running.get().ids, reference.ids);
  running_.join();
  replay_ = nullptr;
  EXPECT_TRUE(ended_.ok()) << ended_.ToString();
}

TEST_F(ServerOperationTest, TheLogLevelChangesWhileTheServerRuns) {
  StartServer();
  testing::internal::CaptureStderr();
  ASSERT_TRUE(ConfigureLog("error", "text").ok());
  const auto set = [&](const std::string& level) {
    grpc::ClientContext context;
    v1::SetLogLevelRequest request;
    v1::SetLogLevelResponse response;
    request.set_level(level);
    return admin_->SetLogLevel(&context, request, &response);
  };
  EXPECT_EQ(set("loud").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(set("info").ok());
  LogInfo("seen_now");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("seen_now"));
  ASSERT_TRUE(ConfigureLog("error", "text").ok());
}

// ---- Keys.

TEST_F(ServerOperationTest, KeysAreWantedOnBothPortsAndAreNeverLogged) {
  const std::string client = "client-key-0123456789-ZQX";
  const std::string admin = "admin-key-0123456789-ZQX";
  config_.auth.keys_file = WriteKeys("shop " + client + "\nadmin " + admin + "\n");
  testing::internal::CaptureStderr();
  ASSERT_TRUE(ConfigureLog("trace", "text").ok());
  StartServer();
  EXPECT_TRUE(HealthSaysServing());
  EXPECT_EQ(CallWith("").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(CallWith("wrong-key-0123456789-ZQX").error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(CallWith(client).ok());
  const auto report = [&](const std::string& key) {
    grpc::ClientContext context;
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    v1::MemoryReportResponse response;
    return admin_->MemoryReport(&context, {}, &response).error_code();
  };
  EXPECT_EQ(report(""), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(report(client), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(report(admin), grpc::StatusCode::OK);
  const std::string metrics = Metrics();
  EXPECT_TRUE(StopServer().ok());
  const std::string seen = metrics + testing::internal::GetCapturedStderr();
  EXPECT_THAT(seen, HasSubstr("keys=on"));
  EXPECT_THAT(seen, Not(HasSubstr("ZQX")));
  std::remove(config_.auth.keys_file.c_str());
}

TEST_F(ServerOperationTest, ABadKeysFileStopsTheStartBeforeAnythingElse) {
  config_.model.path = "/nowhere.gguf";
  config_.auth.keys_file = "/nowhere.keys";
  EXPECT_EQ(ServerApp(config_).Start().field(), "auth.keys_file");
  config_.auth.keys_file = WriteKeys("shop short-ZQX\n");
  const Status refused = ServerApp(config_).Start();
  EXPECT_EQ(refused.field(), "auth.keys_file");
  EXPECT_THAT(refused.message(), Not(HasSubstr("ZQX")));
  std::remove(config_.auth.keys_file.c_str());
}

TEST_F(ServerOperationTest, TheAdminPortInUseIsNamed) {
  StartServer();
  Config config = config_;
  config.admin.grpc_address = app_->admin_grpc_address();
  const Status taken = ServerApp(config).Start();
  EXPECT_EQ(taken.field(), "admin.grpc_address");
  EXPECT_THAT(taken.ToString(), HasSubstr(app_->admin_grpc_address()));
}

}  // namespace
}  // namespace renga
