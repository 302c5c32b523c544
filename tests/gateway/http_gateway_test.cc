// The life of a gateway: start, drain, stop, under clients that come and go.

#include "gateway/http_gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/gateway/gateway_fixture.h"

namespace renga {
namespace {

using testing::HasSubstr;

constexpr char kStreamBody[] =
    R"({"messages":[{"role":"user","content":"x"}],"stream":true})";

class HttpGatewayTest : public GatewayTest {
 protected:
  // Scripts that wait, by their prompt, until the call is cancelled.
  void LetSomeWait() {
    fake_.script = [](const v1::GenerateRequest&) {
      return GenerateScript{.events = {StartedEvent(), ChunkEvent("x")}, .silent = true};
    };
  }
};

TEST_F(HttpGatewayTest, AnAddressThatCannotBeHadIsNamed) {
  settings_.address = address();
  const auto second = HttpGateway::Start(
      settings_, {server_.InProcess(TargetChannelArguments())}, options_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().field(), "gateway.address");
}

TEST_F(HttpGatewayTest, WhileItDrainsNewRequestsAreRefusedAndOldOnesFinish) {
  LetSomeWait();
  HttpClient running(address());
  running.Post("/v1/chat/completions", kStreamBody);
  EXPECT_EQ(running.ReadHead().status, 200);
  gateway_->StartDrain();
  const HttpReply refused = Chat();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.Header("Connection"), "close");
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_EQ(Get("/api/load").Json().at("ready"), false);
  EXPECT_FALSE(gateway_->WaitIdle(TimePoint::min()));
  // The others end when the server has seen that their answers are written.
  while (gateway_->active_requests() != 1) std::this_thread::yield();
  running.Close();
  EXPECT_TRUE(gateway_->WaitIdle(TimePoint::max()));
}

TEST_F(HttpGatewayTest, StoppingEndsStreamsWithAnErrorEventAndWaitersWithAStatus) {
  LetSomeWait();
  HttpClient stream(address());
  stream.Post("/v1/chat/completions", kStreamBody);
  EXPECT_EQ(stream.ReadHead().status, 200);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(stream.ReadChunk());
  HttpClient whole(address());
  whole.Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})");
  fake_.WaitFor([](const auto& counts) { return counts.running() == 2; });
  gateway_->Stop();
  EXPECT_THAT(stream.ReadChunk().value_or(""), HasSubstr("shutting down"));
  EXPECT_FALSE(stream.ReadChunk());
  EXPECT_EQ(whole.ReadReply().status, 503);
  fake_.WaitFor([](const auto& counts) { return counts.running() == 0; });
}

TEST_F(HttpGatewayTest, WithoutTheFirstServerTheNextOneAnswers) {
  auto gateway = HttpGateway::Start(
      settings_,
      {MakeTargetChannel("127.0.0.1:1"), server_.InProcess(TargetChannelArguments())},
      options_);
  ASSERT_TRUE(gateway.ok());
  for (const char* stream : {"false", "true", "false", "true"}) {
    HttpClient client((*gateway)->address());
    client.Post("/v1/chat/completions",
                std::string(R"({"messages":[{"role":"user","content":"x"}],"stream":)") +
                    stream + '}');
    const HttpReply reply = client.ReadReply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_THAT(reply.body, HasSubstr("Hello"));
  }
  EXPECT_EQ(fake_.counts().started, 4);
}

TEST_F(HttpGatewayTest, ASessionStaysWithItsServer) {
  FakeInference second_inference;
  FakeServer second(second_inference);
  auto gateway = HttpGateway::Start(settings_,
                                    {server_.InProcess(TargetChannelArguments()),
                                     second.InProcess(TargetChannelArguments())},
                                    options_);
  ASSERT_TRUE(gateway.ok());
  HttpClient client((*gateway)->address());
  for (int i = 0; i < 6; ++i) {
    client.Post("/v1/completions", R"({"prompt":"x"})", "X-Session-Id: s1\r\n");
    EXPECT_EQ(client.ReadReply().status, 200);
  }
  const int64_t first = fake_.counts().started;
  EXPECT_TRUE(first == 0 || first == 6) << first;
  for (int i = 0; i < 4; ++i) {
    client.Post("/v1/completions", R"({"prompt":"x"})");
    EXPECT_EQ(client.ReadReply().status, 200);
  }
  EXPECT_EQ(fake_.counts().started, first + 2);
}

TEST_F(HttpGatewayTest, InProcessAndApartGiveTheSameBytes) {
  auto apart =
      HttpGateway::Start(settings_, {MakeTargetChannel(server_.address())}, options_);
  ASSERT_TRUE(apart.ok());
  const auto ask = [](const std::string& address, const char* body) {
    HttpClient client(address);
    client.Post("/v1/chat/completions", body);
    std::string answer = client.ReadReply().body;
    // The id and the second differ.
    for (const std::string key : {"\"id\":\"", "\"created\":"}) {
      for (size_t at = 0; (at = answer.find(key, at)) != std::string::npos;) {
        answer.erase(at, answer.find(',', at) - at);
      }
    }
    return answer;
  };
  for (const char* body :
       {R"({"messages":[{"role":"user","content":"x"}]})", kStreamBody}) {
    EXPECT_EQ(ask(address(), body), ask((*apart)->address(), body));
  }
}

// Clients that leave at any moment: nothing is left over, and the others are answered.
TEST_F(HttpGatewayTest, AStormOfClientsThatLeaveHarmsNobody) {
  std::atomic<int> good{0};
  const std::string to = address();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 40; ++i) {
        HttpClient client(to);
        client.Post("/v1/chat/completions", kStreamBody);
        if (i % 4 == 0) {
          good += SseData(client.ReadReply().body).back() == "[DONE]";
          continue;
        }
        client.ReadBytes(random() % 900);
        random() % 2 == 0 ? client.Reset() : client.Close();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 40);
  EXPECT_TRUE(gateway_->WaitIdle(TimePoint::max()));
  fake_.WaitFor([](const auto& counts) { return counts.running() == 0; });
}

}  // namespace
}  // namespace renga
