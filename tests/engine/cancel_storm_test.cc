// Cancels against everything, from many threads: every request ends exactly once, every
// page comes back, and who was not cancelled got the answer of a run alone. Meant for
// TSan and ASan as well.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <random>
#include <thread>

#include "base/system_clock.h"
#include "tests/engine/engine_harness.h"
#include "tests/fakes/fake_backend.h"

namespace renga {
namespace {

constexpr int kThreads = 4;
constexpr int kEach = 500;

class Storm {
 public:
  Storm() {
    backend_.keep_records = false;
    transformer_ = WeightlessTransformer(backend_, 512, options_);
    engine_ = std::make_unique<Engine>(options_, *transformer_, queue_, board_, metrics_,
                                       clock_);
  }

  void Run() {
    std::thread engine([this] { engine_->Run(); });
    std::vector<std::thread> clients;
    for (int t = 0; t < kThreads; ++t) clients.emplace_back([this, t] { Client(t); });
    for (std::thread& client : clients) client.join();
    queue_.Close();
    engine.join();
  }

  void Check() {
    int cancelled = 0, answered = 0;
    for (auto& calls : calls_) {
      for (Call& call : calls) {
        ASSERT_TRUE(call.sink.done());
        const Completion completion = call.sink.completion();
        const auto expected = backend_.ExpectedAnswer(call.prompt, call.tokens);
        if (completion.status.ok()) {
          ++answered;
          for (int32_t choice = 0; choice < call.n; ++choice) {
            ASSERT_THAT(call.sink.tokens(choice), testing::ElementsAreArray(expected));
          }
        } else {
          ++cancelled;
          ASSERT_EQ(completion.status.code(), StatusCode::kCancelled);
          ASSERT_TRUE(call.cancelled);
          ASSERT_TRUE(std::equal(call.sink.tokens().begin(), call.sink.tokens().end(),
                                 expected.begin()));
        }
      }
    }
    EXPECT_EQ(answered + cancelled, kThreads * kEach);
    EXPECT_GT(answered, kThreads * kEach / 10);
    EXPECT_GT(cancelled, 0);
    const EngineSnapshot snapshot = board_.Read();
    EXPECT_EQ(snapshot.pages_free + snapshot.pages_cached, options_.pages);
    EXPECT_FALSE(snapshot.busy);
    EXPECT_EQ(queue_.waiting_requests(), 0);
    EXPECT_EQ(queue_.waiting_tokens(), 0);
  }

 private:
  struct Call {
    explicit Call(CollectingSink::Script script) : sink(std::move(script)) {}
    CollectingSink sink;
    std::vector<TokenId> prompt;
    int64_t tokens = 0;
    int32_t n = 1;
    bool cancelled = false;
  };

  void Client(int thread) {
    std::mt19937 rng(static_cast<uint32_t>(thread));
    std::deque<Call>& calls = calls_[static_cast<size_t>(thread)];
    for (int i = 0; i < kEach; ++i) {
      const RequestId id{next_id_++};
      const int64_t pause_at = rng() % 6 == 0 ? 1 + static_cast<int64_t>(rng() % 5) : 0;
      // Some are cancelled from inside: however fast the engine is, these are in time.
      const bool from_inside = rng() % 8 == 0;
      Call& call =
          calls.emplace_back([this, id, pause_at, from_inside](int64_t n, TokenId) {
            if (from_inside && n == 1) queue_.PostCancel(id);
            if (n != pause_at) return SinkVerdict::kContinue;
            queue_.PostResume(id);  // As a write that ends at once would.
            return SinkVerdict::kPause;
          });
      call.prompt = PromptOf(1 + static_cast<int64_t>(rng() % 150), i);
      call.tokens = (from_inside ? 2 : 1) + static_cast<int64_t>(rng() % 40);
      call.n = rng() % 5 == 0 ? 3 : 1;
      call.cancelled = from_inside;
      Push(id, call);
      if (from_inside || rng() % 4 == 0) continue;
      for (int spins = static_cast<int>(rng() % 50); spins > 0; --spins) {
        std::this_thread::yield();
      }
      call.cancelled = true;
      queue_.PostCancel(id);
      if (rng() % 8 == 0) queue_.PostCancel(id);
    }
  }

  void Push(RequestId id, Call& call) {
    EngineRequest request;
    request.id = id;
    request.prompt = call.prompt;
    request.sampling.temperature = 0.0f;
    request.max_tokens = call.tokens;
    request.max_tokens_given = true;
    request.n = call.n;
    request.logprobs = call.n == 1 ? -1 : 2;
    request.arrival = clock_.Now();
    request.sink = std::make_unique<ForwardingSink>(call.sink);
    // Full: step aside, so that on few cores the engine gets its turn.
    while (queue_.TryPush(request) != WaitQueue::PushResult::kOk) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  const EngineOptions options_{
      .scheduler = {.window_ms = 1, .max_sequences = 12, .prefill_slice_tokens = 40},
      .pages = 14};
  SystemClock clock_;
  FakeBackend backend_;
  SnapshotBoard board_;
  ServerMetrics metrics_{"fake", "fake"};
  WaitQueue queue_{{.max_requests = 64, .max_tokens = 4000}};
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<Engine> engine_;
  std::atomic<uint64_t> next_id_{1};
  std::array<std::deque<Call>, kThreads> calls_;
};

TEST(CancelStormTest, EveryRequestEndsOnceAndEveryPageComesBack) {
  Storm storm;
  storm.Run();
  storm.Check();
}

TEST(CancelStormTest, StopInTheMiddleOfALoadEndsEverybodyOnce) {
  const EngineOptions options{.scheduler = {}, .pages = 40};
  for (int round = 0; round < 20; ++round) {
    FakeBackend backend;
    backend.keep_records = false;
    const auto transformer = WeightlessTransformer(backend, 512, options);
    EngineHarness harness(options, *transformer);
    std::thread engine([&] { harness.engine.Run(); });
    std::deque<CollectingSink> sinks;
    size_t accepted = 0;
    for (int i = 0; i < 60; ++i) {
      if (i == 10 + 2 * round) harness.engine.Stop(Unavailable("stop"));
      EngineRequest request = harness.Request(PromptOf(20, i), 400);
      request.sink = std::make_unique<ForwardingSink>(sinks.emplace_back());
      if (harness.queue.TryPush(request) == WaitQueue::PushResult::kOk) ++accepted;
    }
    engine.join();
    size_t ended = 0;
    for (const CollectingSink& sink : sinks) ended += sink.done() ? 1 : 0;
    EXPECT_EQ(ended, accepted);
    harness.ExpectAllEnded();
  }
}

}  // namespace
}  // namespace renga
