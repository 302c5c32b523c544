// Calls of the native API: order of messages, cancel at any moment, other targets.

#include "gateway/inference_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <optional>

#include "tests/gateway/fake_inference.h"

namespace renga {
namespace {

// A loop that runs in the test's own thread.
class TestLoop {
 public:
  void Post(std::function<void()> task) {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.NotifyAll();
  }
  // Runs tasks until `done` says so.
  template <class Done>
  void RunUntil(Done done) {
    while (!done()) {
      std::function<void()> task;
      {
        MutexLock lock(mutex_);
        while (tasks_.empty()) changed_.Wait(mutex_);
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  CallOrigin Origin() {
    CallOrigin origin;
    origin.post = [this](std::function<void()> task) { Post(std::move(task)); };
    return origin;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ RENGA_GUARDED_BY(mutex_);
};

struct Recorder final : GenerateObserver {
  void OnEvent(size_t, const TargetInfo& target, v1::GenerateResponse& event) override {
    fingerprint = target.numerics_id;
    if (event.has_chunk()) text += event.chunk().text();
    ++events;
  }
  void OnEnd(size_t, const Status& end) override {
    ended = true;
    status = end;
  }
  std::string text;
  std::string fingerprint;
  int events = 0;
  bool ended = false;
  Status status;
};

class InferenceClientTest : public testing::Test {
 protected:
  ~InferenceClientTest() override {
    loop_.RunUntil([this] { return client_.calls().count() == 0; });
  }

  FakeInference fake_;
  FakeServer server_{fake_};
  TestLoop loop_;
  InferenceClient client_{{server_.InProcess(TargetChannelArguments())}};
  std::shared_ptr<Recorder> recorder_ = std::make_shared<Recorder>();
};

TEST_F(InferenceClientTest, MessagesComeOneByOneAsTheyAreAskedFor) {
  const auto call = client_.Generate(0, loop_.Origin(), {}, recorder_);
  for (int expected = 1; expected <= 4; ++expected) {
    loop_.RunUntil([&] { return recorder_->events == expected; });
    EXPECT_FALSE(recorder_->ended);
    call->Next();
  }
  loop_.RunUntil([&] { return recorder_->ended; });
  EXPECT_TRUE(recorder_->status.ok());
  EXPECT_EQ(recorder_->text, "Hello world");
  EXPECT_EQ(recorder_->fingerprint, "n1");
}

TEST_F(InferenceClientTest, NobodyWhoCancelledHearsAnything) {
  fake_.script = [](const v1::GenerateRequest&) {
    GenerateScript script{.events = {StartedEvent(), ChunkEvent("x")}};
    script.endless = true;
    return script;
  };
  // Cancelled at once, after the first message, and while one is being read.
  for (int when = 0; when < 3; ++when) {
    auto recorder = std::make_shared<Recorder>();
    const auto call = client_.Generate(0, loop_.Origin(), {}, recorder);
    if (when > 0) loop_.RunUntil([&] { return recorder->events == 1; });
    if (when > 1) call->Next();
    const int before = recorder->events;
    call->Cancel();
    call->Cancel();
    call->Next();
    loop_.RunUntil([&] { return client_.calls().count() == 0; });
    EXPECT_EQ(recorder->events, before);
    EXPECT_FALSE(recorder->ended);
    EXPECT_EQ(recorder.use_count(), 1) << "the call lets its observer go";
  }
}

TEST_F(InferenceClientTest, AUnaryCallThatIsCancelledIsNotHeardOf) {
  int heard = 0;
  const auto count = [&](const Status&, const TargetInfo&, auto&) { ++heard; };
  client_.GenerateUnary(loop_.Origin(), {}, count);
  loop_.RunUntil([&] { return heard == 1; });
  // What is known of the target is fresh now, so the next call is sent at once.
  fake_.script = [](const v1::GenerateRequest&) {
    return GenerateScript{.events = {}, .silent = true};
  };
  const auto call = client_.GenerateUnary(loop_.Origin(), {}, count);
  fake_.WaitFor([](const auto& counts) { return counts.running() == 1; });
  call->Cancel();
  loop_.RunUntil([&] { return client_.calls().count() == 0; });
  EXPECT_EQ(heard, 1);
  fake_.WaitFor([](const auto& counts) { return counts.cancelled == 1; });
}

TEST_F(InferenceClientTest, OnlyATargetThatIsNotReadyIsPassedOver) {
  FakeInference other;
  FakeServer other_server(other);
  InferenceClient client({server_.InProcess(TargetChannelArguments()),
                          other_server.InProcess(TargetChannelArguments())});
  const auto end_with = [&](grpc::StatusCode code, const char* message = "no") {
    fake_.script = [=](const v1::GenerateRequest&) {
      return GenerateScript{.events = {}, .end = {code, message}};
    };
    auto recorder = std::make_shared<Recorder>();
    CallOrigin origin = loop_.Origin();
    const auto call = client.Generate(0, origin, {}, recorder);
    loop_.RunUntil([&] { return recorder->ended || recorder->events > 0; });
    call->Cancel();
    loop_.RunUntil([&] { return client.calls().count() == 0; });
    return recorder->events > 0;
  };
  EXPECT_FALSE(end_with(grpc::StatusCode::INVALID_ARGUMENT));  // The first one's turn.
  EXPECT_TRUE(end_with(grpc::StatusCode::INTERNAL));           // The second one's.
  EXPECT_TRUE(end_with(grpc::StatusCode::UNAVAILABLE));        // Passed over.
  EXPECT_TRUE(end_with(grpc::StatusCode::UNAVAILABLE));
}

// gRPC's own word for what comes to a server that ends; renga's cancellations are final.
TEST_F(InferenceClientTest, WhatAServerThatEndsDidNotTakeIsNotCancelled) {
  const auto status_after = [&](const char* message) {
    fake_.script = [=](const v1::GenerateRequest&) {
      return GenerateScript{.events = {}, .end = {grpc::StatusCode::CANCELLED, message}};
    };
    auto recorder = std::make_shared<Recorder>();
    const auto call = client_.Generate(0, loop_.Origin(), {}, recorder);
    loop_.RunUntil([&] { return recorder->ended; });
    Status unary;
    bool answered = false;
    client_.GenerateUnary(loop_.Origin(), {}, [&](const Status& status, auto&&...) {
      unary = status;
      answered = true;
    });
    loop_.RunUntil([&] { return answered; });
    EXPECT_EQ(unary.code(), recorder->status.code());
    return unary.code();
  };
  EXPECT_EQ(status_after("CANCELLED"), StatusCode::kUnavailable);
  EXPECT_EQ(status_after("the request was cancelled"), StatusCode::kCancelled);
}

// The server answers at the deadline; only one that is silent is not waited for.
TEST_F(InferenceClientTest, ADeadlineHoldsForACallWhoseServerIsSilent) {
  using std::chrono::milliseconds;
  const auto deadline_of = [&](std::optional<int64_t> deadline_ms) {
    v1::GenerateRequest request;
    if (deadline_ms) request.set_deadline_ms(*deadline_ms);
    auto recorder = std::make_shared<Recorder>();
    const auto call = client_.Generate(0, loop_.Origin(), request, recorder);
    loop_.RunUntil([&] { return recorder->events > 0; });
    call->Cancel();
    loop_.RunUntil([&] { return client_.calls().count() == 0; });
    return fake_.last_deadline();
  };
  const auto now = std::chrono::system_clock::now();
  EXPECT_GT(deadline_of(std::nullopt), now + std::chrono::hours(1000));
  EXPECT_GT(deadline_of(3'600'000), now + milliseconds(3'600'000));
  EXPECT_LT(deadline_of(3'600'000), now + milliseconds(7'200'000));
  for (const int64_t wild : {std::numeric_limits<int64_t>::max(), int64_t{1} << 40}) {
    EXPECT_LT(deadline_of(wild), now + std::chrono::hours(25));
  }
  EXPECT_GT(deadline_of(std::numeric_limits<int64_t>::min()), now);
}

TEST_F(InferenceClientTest, IfNoTargetIsReadyTheCallSaysSo) {
  InferenceClient away(
      {MakeTargetChannel("127.0.0.1:1"), MakeTargetChannel("127.0.0.1:1")});
  away.Generate(0, loop_.Origin(), {}, recorder_);
  loop_.RunUntil([&] { return recorder_->ended; });
  EXPECT_EQ(recorder_->status.code(), StatusCode::kUnavailable);
  loop_.RunUntil([&] { return away.calls().count() == 0; });
}

}  // namespace
}  // namespace renga
