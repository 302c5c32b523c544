// Five thousand requests of every kind over the real engine, service and CPU backend with
// a tiny model: nothing is left behind, and the memory check raises nothing. With a leak
// put in, it does.

#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "app/app_control.h"
#include "app/loaded_model.h"
#include "app/memory_check.h"
#include "base/log.h"
#include "base/system_clock.h"
#include "batching/wait_queue.h"
#include "engine/engine.h"
#include "service/generation_service.h"
#include "tests/fakes/collecting_sink.h"
#include "tests/fakes/manual_clock.h"
#include "tests/models/tiny_model.h"
#include "tests/models/tiny_vocab.h"

namespace renga {
namespace {

// A sanitizer keeps what was freed for a while: the process grows by that.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

class SoakTest : public testing::Test {
 protected:
  static constexpr int kTogether = 12;  // Requests between two looks.

  void SetUp() override {
    ASSERT_TRUE(ConfigureLog("error", "text").ok());
    path_ = testing::TempDir() + "renga_soak_test_" +
            testing::UnitTest::GetInstance()->current_test_info()->name() + ".gguf";
    ASSERT_TRUE(test::WriteTinyModel({.layers = 1}, path_));
    config_.model.path = path_;
    config_.device.threads = 1;
    config_.kv.pool_bytes = 10 * 8192;  // 10 pages: preemptions and evictions.
    auto opened = LoadedModel::Open(config_);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    model_ = *std::move(opened);
    ASSERT_TRUE(model_->MakeDevice(MakeDefaultBackend).ok());
    const EngineOptions options{
        .scheduler = config_.scheduler, .pages = model_->pages(), .prefix_cache = true};
    ASSERT_TRUE(model_->LoadWeights(EngineBackendLimits(options)).ok());
    engine_ = std::make_unique<Engine>(options, model_->transformer(), queue_, board_,
                                       metrics_, clock_);
    service_ = std::make_unique<GenerationServiceImpl>(
        GenerationOptions{.kv_pages = model_->pages()}, model_->Describe(),
        GenerationParts{.tokenizer = model_->tokenizer(),
                        .chat_template = model_->chat_template(),
                        .no_template_reason = "",
                        .queue = queue_,
                        .board = board_,
                        .metrics = metrics_,
                        .clock = clock_});
    engine_thread_ = std::thread([this] { engine_->Run(); });
    service_->SetReady(true);
    memory_ = std::make_unique<MemoryCheck>(
        MemoryCheck::Parts{.ledger = MemoryLedger::Process(),
                           .board = board_,
                           .metrics = metrics_,
                           .clock = made_up_,
                           .kv_page_bytes = model_->backend().page_bytes()});
  }

  void TearDown() override {
    engine_->Stop(Unavailable("the test is over"));
    engine_thread_.join();
    std::remove(path_.c_str());
  }

  // A request of a random kind; some are refused, some end early.
  GenerateRequest RandomRequest() {
    const auto pick = [&](int most) { return static_cast<int>(random_() % (most + 1)); };
    GenerateRequest request;
    request.id = service_->NewRequestId();
    request.max_tokens = pick(5) == 0 ? pick(300) : pick(20);
    request.n = pick(5) == 0 ? 1 + pick(3) : 1;
    request.ignore_end_token = pick(2) == 0;
    if (pick(3) == 0) request.logprobs = pick(5);
    if (pick(9) == 0) request.prompt_logprobs = pick(3);
    if (pick(9) == 0) request.echo = true;
    if (pick(3) == 0) request.stop = {"e", "ab"};
    if (pick(4) == 0) request.sampling.repetition_penalty = 1.2f;
    if (pick(9) == 0) request.sampling.top_p = 7.0f;  // Refused.
    if (pick(4) == 0)
      request.cache_salt = std::string(1, static_cast<char>('a' + pick(2)));
    request.priority = static_cast<Priority>(pick(2));
    request.tenant = pick(1) == 0 ? "one" : "two";
    if (pick(5) == 0) {
      request.prompt = ChatInput{.messages = {{.role = "user", .content = "hello"}}};
      return request;
    }
    // Shared beginnings, and now and then more than fits.
    std::vector<TokenId> ids(static_cast<size_t>(1 + pick(pick(40) == 0 ? 3000 : 150)));
    const int family = pick(4);
    const size_t shared = static_cast<size_t>(pick(150));
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = test::kTinyFirstByte +
               (i < shared ? (family + static_cast<int>(i)) % 250 : pick(249));
    }
    request.prompt = std::move(ids);
    return request;
  }

  // Some requests at the same time, one in eight of them cancelled; returns when all have
  // ended and the engine has let go of them.
  void ServeSome() {
    std::deque<CollectingSink> sinks(kTogether);
    std::vector<RequestId> cancelled;
    for (CollectingSink& sink : sinks) {
      GenerateRequest request = RandomRequest();
      if (random_() % 8 == 0) cancelled.push_back(request.id);
      service_->Generate(std::move(request), sink);
    }
    for (const RequestId id : cancelled) service_->Cancel(id);
    for (CollectingSink& sink : sinks) sink.WaitDone();
    while (!Idle()) std::this_thread::yield();
  }
  bool Idle() const {
    const EngineSnapshot engine = board_.Read();
    return !engine.busy && engine.running == 0 && engine.waiting == 0 &&
           MemoryLedger::Process().Read(MemoryPurpose::kRequests).buffers == 0;
  }

  void ServeAndLook(int requests) {
    for (int done = 0; done < requests; done += kTogether) {
      ServeSome();
      leak_();
      made_up_.Advance(std::chrono::seconds(10));
      memory_->Look();
    }
  }

  std::vector<std::string> Suspected() {
    std::vector<std::string> names;
    for (const MemoryReport::Row& row : memory_->Report().rows) {
      if (kSanitized && row.purpose == "process") continue;
      if (row.leak_suspected) names.push_back(row.purpose);
    }
    return names;
  }
  int64_t Flush() {
    AppControl control(*memory_, queue_, [] {});
    const StatusOr<int64_t> pages = control.FlushCache();
    EXPECT_TRUE(pages.ok());
    return pages.ok() ? *pages : -1;
  }

  std::mt19937 random_{1};
  std::string path_;
  Config config_;
  std::unique_ptr<LoadedModel> model_;
  SystemClock clock_;
  ManualClock made_up_;  // Of the memory check.
  ServerMetrics metrics_{"tiny", "cpu"};
  WaitQueue queue_{{}};
  SnapshotBoard board_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<GenerationServiceImpl> service_;
  std::unique_ptr<MemoryCheck> memory_;
  std::thread engine_thread_;
  std::function<void()> leak_ = [] {};
};

TEST_F(SoakTest, FiveThousandMixedRequestsLeaveNothingBehindAndRaiseNothing) {
  ServeAndLook(500);
  Flush();
  const MemoryReport before = memory_->Report();
  ServeAndLook(5000);
  EXPECT_TRUE(Suspected().empty()) << Suspected().front();
  Flush();
  const MemoryReport after = memory_->Report();
  for (size_t row = 0; row < kMemoryPurposes; ++row) {
    const MemoryReport::Row& now = after.rows[row];
    // The engine books the cache's own tables anew when they have changed by some KiB.
    const bool about = row == static_cast<size_t>(MemoryPurpose::kPrefixCache);
    EXPECT_LE(now.bytes, before.rows[row].bytes + (about ? 16'384 : 0)) << now.purpose;
    EXPECT_EQ(now.buffers, before.rows[row].buffers) << now.purpose;
  }
  EXPECT_EQ(after.kv_pages_used, 0);
  EXPECT_EQ(after.kv_pages_cached, 0);
  // It was a soak: all ends came, and the pool was too small now and then.
  const auto count = [text = metrics_.Serialize()](const std::string& series) {
    const size_t at = text.find("\nrenga_" + series);
    EXPECT_NE(at, std::string::npos) << series;
    const size_t value = text.find(' ', at);
    return std::stod(text.substr(value + 1));
  };
  EXPECT_EQ(metrics_.requests(), 504 + 5004);
  EXPECT_GT(count("requests_total{model=\"tiny\",outcome=\"ok\"}"), 3000);
  EXPECT_GT(count("requests_total{model=\"tiny\",outcome=\"cancelled\"}"), 100);
  EXPECT_GT(count("requests_total{model=\"tiny\",outcome=\"rejected\"}"), 300);
  EXPECT_GT(count("prompt_tokens_total{model=\"tiny\",source=\"prefix\"}"), 10'000);
  EXPECT_GT(count("kv_cache_evictions_total{model=\"tiny\"}"), 100);
  EXPECT_GT(count("preemptions_total{model=\"tiny\"}"), 0);
  // Less than 50 bytes of the heap for each request.
  const int64_t grown = after.rows[kHeapRow].bytes - before.rows[kHeapRow].bytes;
  std::printf("heap after 5000 requests: %+ld bytes\n", static_cast<long>(grown));
  EXPECT_LT(grown, 250'000);
}

TEST_F(SoakTest, AKibibyteOfTheHeapPerRequestIsRaised) {
  std::vector<std::vector<char>> forgotten;
  leak_ = [&] {
    for (int i = 0; i < kTogether; ++i) forgotten.emplace_back(1024, 'x');
  };
  ServeAndLook(5000);
  if (ReadSystemMemory().heap_bytes == 0) GTEST_SKIP() << "a sanitizer's own heap";
  EXPECT_EQ(Suspected(), std::vector<std::string>{"heap"});
}

TEST_F(SoakTest, OneBigBufferThatStaysIsRaised) {
  ServeAndLook(300);
  const MemoryBooking forgotten(MemoryPurpose::kOther, 16 << 20);
  ServeAndLook(1500);
  EXPECT_EQ(Suspected(), std::vector<std::string>{"other"});
}

}  // namespace
}  // namespace renga
