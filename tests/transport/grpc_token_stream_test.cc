#include "transport/grpc_token_stream.h"

#include <gmock/gmock.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/transport/server_fixture.h"

namespace renga {
namespace {

using Script = FakeGenerationService::Script;
using Counts = FakeGenerationService::Counts;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;

bool Idle(const Counts& counts) {
  return counts.running == 0 && counts.started == counts.done;
}

class GrpcTokenStreamTest : public ServerFixture {
 protected:
  void Serve(const Script& what) {
    service_.script = [what](const GenerateRequest&) { return what; };
  }
  // A client whose HTTP/2 window takes little that it has not read.
  static grpc::ChannelArguments SmallWindow() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1024);
    return arguments;
  }
  // 16 KiB a token: fills the window after a few.
  static Script Endless() {
    return {.tokens = FakeGenerationService::kEndless, .text = std::string(16384, 'x')};
  }
  void WaitUntilNoCallIsActive() {
    while (server_->active_calls() > 0) std::this_thread::yield();
  }
};

TEST_F(GrpcTokenStreamTest, TheStreamIsOneStartedThenChunksThenOneFinished) {
  Serve({.tokens = 3});
  const StreamResult result = Stream(TextRequest("x"));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_THAT(result.order,
              ElementsAre("started", "chunk", "chunk", "chunk", "finished"));
  EXPECT_EQ(result.started.model(), "fake");
  EXPECT_EQ(result.started.prompt_tokens(), 7);
  EXPECT_EQ(result.started.kv_source(), v1::KV_SOURCE_COMPUTED);
  EXPECT_EQ(result.started.queue_us(), 3);
  EXPECT_EQ(result.finished.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(result.finished.stop_cause(), v1::STOP_CAUSE_END_TOKEN);
  EXPECT_EQ(result.finished.usage().prompt_tokens(), 7);
  EXPECT_EQ(result.finished.usage().completion_tokens(), 3);
}

TEST_F(GrpcTokenStreamTest, EachOfSeveralChoicesEndsOnceAfterItsLastChunk) {
  Serve({.choice_tokens = {2, 0, 1}});
  v1::GenerateRequest request = TextRequest("x");
  request.set_n(3);
  const StreamResult result = Stream(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_THAT(result.order,
              ElementsAre("started", "chunk", "choice_finished", "chunk", "chunk",
                          "choice_finished", "choice_finished", "finished"));
  ASSERT_EQ(result.finished.choices_size(), 3);
  for (const v1::ChoiceFinished& end : result.ends) {
    EXPECT_EQ(end.finish_reason(), v1::FINISH_REASON_STOP);
    EXPECT_EQ(end.SerializeAsString(),
              result.finished.choices(end.choice()).SerializeAsString());
  }
  EXPECT_EQ(result.finished.choices(0).completion_tokens(), 2);
  EXPECT_EQ(result.finished.choices(1).completion_tokens(), 0);
  EXPECT_EQ(result.finished.choices(2).completion_tokens(), 1);
  // Usage: the sum over the choices; the prompt once.
  EXPECT_EQ(result.finished.usage().completion_tokens(), 3);
  EXPECT_EQ(result.finished.usage().prompt_tokens(), 7);
}

TEST_F(GrpcTokenStreamTest, ASingleChoiceEndsInTheLastMessageAlone) {
  Serve({.tokens = 1});
  const StreamResult result = Stream(TextRequest("x"));
  EXPECT_TRUE(result.ends.empty());
  ASSERT_EQ(result.finished.choices_size(), 1);
  EXPECT_EQ(result.finished.choices(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(result.finished.choices(0).completion_tokens(), 1);
}

TEST_F(GrpcTokenStreamTest, AFailureHalfWayEndsTheStreamWithoutFinished) {
  Serve({.tokens = 2, .failure = Internal("broken")});
  const StreamResult result = Stream(TextRequest("x"));
  EXPECT_THAT(result.order, ElementsAre("started", "chunk", "chunk"));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INTERNAL);
}

// Nothing but trailers: a proxy can tell that nothing had begun.
TEST_F(GrpcTokenStreamTest, TheRequestIdOfARefusedCallComesWithItsStatus) {
  Serve({.refusal = ResourceExhausted("full")});
  const auto check = [](const grpc::ClientContext& context) {
    EXPECT_EQ(context.GetServerInitialMetadata().count("x-request-id"), 0u);
    const auto& metadata = context.GetServerTrailingMetadata();
    ASSERT_EQ(metadata.count("x-request-id"), 1u);
    EXPECT_EQ(metadata.find("x-request-id")->second, "mine-1");
  };
  for (const v1::GenerateRequest& request : {v1::GenerateRequest(), TextRequest("x")}) {
    grpc::ClientContext streamed, unary;
    streamed.AddMetadata("x-request-id", "mine-1");
    unary.AddMetadata("x-request-id", "mine-1");
    EXPECT_FALSE(ReadAll(*stub_->Generate(&streamed, request)).status.ok());
    v1::GenerateUnaryResponse response;
    EXPECT_FALSE(stub_->GenerateUnary(&unary, request, &response).ok());
    check(streamed);
    check(unary);
  }
}

TEST_F(GrpcTokenStreamTest, EveryWrittenMessageIsMeasured) {
  Serve({.tokens = 3});
  ASSERT_TRUE(Stream(TextRequest("x")).status.ok());
  WaitUntilNoCallIsActive();
  EXPECT_THAT(metrics_.Serialize(),
              HasSubstr("renga_stream_write_seconds_count{model=\"fake\"} 5\n"));
}

TEST_F(GrpcTokenStreamTest, AnAnswerLongerThanTheBacklogArrivesWhole) {
  Start({.max_backlog_chunks = 2});
  const Script what{.tokens = 3000, .text = "é-"};
  Serve(what);
  const StreamResult result = Stream(TextRequest("x"));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.text, FakeGenerationService::Text(what, 3000));
  EXPECT_EQ(result.chunks, 3000);
}

TEST_F(GrpcTokenStreamTest, ACancelByTheClientReachesTheService) {
  Serve({.tokens = FakeGenerationService::kEndless});
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, TextRequest("x"));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  context.TryCancel();
  service_.WaitFor([](const Counts& c) { return c.cancels == 1 && Idle(c); });
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::CANCELLED);
  WaitUntilNoCallIsActive();
}

TEST_F(GrpcTokenStreamTest, ACancelBeforeTheFirstTokenReachesTheService) {
  Serve({.silent = true});
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, TextRequest("x"));
  service_.WaitFor([](const Counts& c) { return c.running == 1; });
  context.TryCancel();
  service_.WaitFor([](const Counts& c) { return c.cancels == 1 && Idle(c); });
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GrpcTokenStreamTest, APassedDeadlineEndsTheRequest) {
  Serve({.silent = true});
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(30));
  const StreamResult result = ReadAll(*stub_->Generate(&context, TextRequest("x")));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  service_.WaitFor([](const Counts& c) { return c.started == 1 && Idle(c); });
  WaitUntilNoCallIsActive();
}

TEST_F(GrpcTokenStreamTest, AVanishedClientIsCancelled) {
  Serve({.tokens = FakeGenerationService::kEndless});
  {
    auto stub = NewStub({});
    grpc::ClientContext context;
    auto reader = stub->Generate(&context, TextRequest("x"));
    v1::GenerateResponse message;
    ASSERT_TRUE(reader->Read(&message));
    // Everything goes away with the stream unread.
  }
  service_.WaitFor([](const Counts& c) { return c.cancels == 1 && Idle(c); });
  WaitUntilNoCallIsActive();
}

TEST_F(GrpcTokenStreamTest, ASlowReaderPausesAndNothingIsLostWhenItGoesOn) {
  Start({.write_timeout_ms = 600'000, .max_backlog_chunks = 4});
  const Script what = Endless();
  Serve(what);
  auto stub = NewStub(SmallWindow());
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, TextRequest("x"));
  const Counts paused = service_.WaitFor([](const Counts& c) { return c.pauses == 1; });
  EXPECT_EQ(paused.resumes, 0);

  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  ASSERT_TRUE(message.has_started());
  for (int i = 0; i < paused.tokens + 20; ++i) {
    ASSERT_TRUE(reader->Read(&message)) << i;
    ASSERT_EQ(message.chunk().token_ids(0), i);
    ASSERT_EQ(message.chunk().text(), what.text + std::to_string(i));
  }
  EXPECT_GE(service_.counts().resumes, 1);
  context.TryCancel();
  service_.WaitFor(Idle);
}

TEST_F(GrpcTokenStreamTest, AReaderThatNeverReadsHoldsABoundedBacklogAndNoOther) {
  Start({.write_timeout_ms = 600'000, .max_backlog_chunks = 4});
  service_.script = [](const GenerateRequest& request) {
    return std::get<std::string>(request.prompt) == "slow" ? Endless() : Script{};
  };
  auto stub = NewStub(SmallWindow());
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, TextRequest("slow"));
  const int64_t tokens =
      service_.WaitFor([](const Counts& c) { return c.pauses == 1; }).tokens;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Stream(TextRequest("other")).status.ok());
  EXPECT_EQ(service_.counts().tokens, tokens + 50);
  // What is written and not read is bounded by the client's window, not by the answer.
  EXPECT_LE(tokens, 64);
  context.TryCancel();
  service_.WaitFor(Idle);
}

TEST_F(GrpcTokenStreamTest, AReaderThatTakesNothingForTheWriteTimeoutIsCut) {
  Start({.write_timeout_ms = 100, .max_backlog_chunks = 4});
  Serve(Endless());
  auto stub = NewStub(SmallWindow());
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, TextRequest("x"));
  service_.WaitFor([](const Counts& c) { return c.cancels == 1 && Idle(c); });
  WaitUntilNoCallIsActive();
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_THAT(metrics_.Serialize(), ContainsRegex("cancellations_total.*write.* 1\n"));
}

TEST_F(GrpcTokenStreamTest, AnAnswerThatEndsWhileItsReaderIsStuckIsCutAsWell) {
  Start({.write_timeout_ms = 100, .max_backlog_chunks = 64});
  // Ends before the backlog is full: the engine is done, the last writes hang.
  Script what = Endless();
  what.tokens = 30;
  Serve(what);
  auto stub = NewStub(SmallWindow());
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, TextRequest("x"));
  service_.WaitFor([](const Counts& c) { return c.started == 1 && Idle(c); });
  WaitUntilNoCallIsActive();
  EXPECT_EQ(service_.counts().cancels, 0);
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GrpcTokenStreamTest, AReaderThatDoesNotTakeTheLastMessageIsCutAsWell) {
  Start({.write_timeout_ms = 100});
  Serve({.tokens = 1, .stop_text = std::string(1'000'000, 'x')});
  auto stub = NewStub(SmallWindow());
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, TextRequest("x"));
  service_.WaitFor([](const Counts& c) { return c.started == 1 && Idle(c); });
  WaitUntilNoCallIsActive();
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::CANCELLED);
}

// Answers of 0 to 5 tokens, cancelled at a random moment around their end, beside ones
// that are left alone.
TEST_F(GrpcTokenStreamTest, RacesOfCancelAndCompletionLoseNothing) {
  service_.script = [](const GenerateRequest& request) {
    return Script{.tokens = request.max_tokens.value_or(0)};
  };
  constexpr int kThreads = 8;
  constexpr int kCallsPerThread = 275;  // 250 raced and 25 left alone: 2,200 in all.
  std::atomic<int64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      auto stub = NewStub({});
      for (int i = 0; i < kCallsPerThread; ++i) {
        const bool alone = i % 11 == 10;
        v1::GenerateRequest request = TextRequest("x");
        request.set_max_tokens(static_cast<int64_t>(random() % 6));
        grpc::ClientContext context;
        std::thread canceller;
        if (!alone) {
          canceller = std::thread([&context, delay = random() % 600] {
            std::this_thread::sleep_for(std::chrono::microseconds(delay));
            context.TryCancel();
          });
        }
        grpc::Status status;
        std::string text;
        if (random() % 2 == 0) {
          StreamResult result = ReadAll(*stub->Generate(&context, request));
          status = result.status;
          text = result.text;
        } else {
          v1::GenerateUnaryResponse response;
          status = stub->GenerateUnary(&context, request, &response);
          text = response.text();
        }
        if (canceller.joinable()) canceller.join();
        const bool complete =
            text == FakeGenerationService::Text({}, request.max_tokens());
        const bool cancelled = status.error_code() == grpc::StatusCode::CANCELLED;
        if (!(status.ok() ? complete : cancelled && !alone)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  service_.WaitFor(Idle);
  WaitUntilNoCallIsActive();
  // A call that was cancelled before it reached the server never started.
  EXPECT_LE(service_.counts().started, kThreads * kCallsPerThread);
  EXPECT_GE(service_.counts().started, kThreads * kCallsPerThread / 11);
}

}  // namespace
}  // namespace renga
