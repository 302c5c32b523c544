// The admin listener on a real port, against a client of plain sockets.

#include "gateway/admin_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/http_connection.h"

namespace renga {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class AdminListenerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto started = AdminListener::Start(
        "127.0.0.1:0",
        {.metrics = [] { return "up 1\n"; },
         .ready = [this] { return ready_.load(); },
         .requests = [](bool slow) { return slow ? "[1]\n" : "[1,2]\n"; }});
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    listener_ = *std::move(started);
  }

  std::string Ask(const std::string& first_line, const std::string& headers = "") {
    HttpConnection connection(listener_->address());
    connection.Send(first_line + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
                    headers + "\r\n");
    return connection.ReadToEnd();
  }

  std::atomic<bool> ready_{false};
  std::unique_ptr<AdminListener> listener_;
};

TEST_F(AdminListenerTest, LiveFromTheStartReadyWhenToldSo) {
  EXPECT_THAT(Ask("GET /livez"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask("GET /readyz"), StartsWith("HTTP/1.1 503"));
  ready_ = true;
  EXPECT_THAT(Ask("GET /readyz"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask("GET /readyz?verbose=1"), StartsWith("HTTP/1.1 200"));
}

TEST_F(AdminListenerTest, MetricsAreTextExposition) {
  const std::string response = Ask("GET /metrics");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(response, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_TRUE(response.ends_with("\r\n\r\nup 1\n"));
}

TEST_F(AdminListenerTest, TheLastRequestsAreJsonAndTheSlowOnesApart) {
  const std::string all = Ask("GET /debug/requests");
  EXPECT_THAT(all, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(all, HasSubstr("Content-Type: application/json"));
  EXPECT_TRUE(all.ends_with("\r\n\r\n[1,2]\n"));
  EXPECT_TRUE(Ask("GET /debug/requests?slow=0").ends_with("\r\n\r\n[1,2]\n"));
  EXPECT_TRUE(Ask("GET /debug/requests?slow=1").ends_with("\r\n\r\n[1]\n"));
  EXPECT_THAT(Ask("GET /debug/requests?slow=yes"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Ask("POST /debug/requests"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask("GET /debug"), StartsWith("HTTP/1.1 404"));
}

TEST_F(AdminListenerTest, WithoutARecorderThereIsNoSuchPath) {
  const auto plain = AdminListener::Start(
      "127.0.0.1:0",
      {.metrics = [] { return std::string(); }, .ready = [] { return true; }});
  ASSERT_TRUE(plain.ok());
  HttpConnection connection((*plain)->address());
  connection.Send("GET /debug/requests HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(connection.ReadToEnd(), StartsWith("HTTP/1.1 404"));
}

TEST_F(AdminListenerTest, OtherPathsAndMethodsAreRefused) {
  EXPECT_THAT(Ask("GET /"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("GET /metricsx"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("DELETE /other"), StartsWith("HTTP/1.1 404"));
  const std::string response = Ask("POST /livez");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(response, HasSubstr("Allow: GET"));
}

// A body behind the answer to HEAD would be read as the start of the next answer.
TEST_F(AdminListenerTest, TheAnswerToHeadHasNoBody) {
  HttpConnection connection(listener_->address());
  connection.Send(
      "HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(connection.ReadResponse(), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(connection.ReadResponse(), StartsWith("HTTP/1.1 200"));
}

TEST_F(AdminListenerTest, OneConnectionServesManyRequests) {
  HttpConnection connection(listener_->address());
  for (int i = 0; i < 5; ++i) {
    connection.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(connection.ReadResponse(), StartsWith("HTTP/1.1 200"));
  }
  connection.Send("GET /livez HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(connection.ReadResponse(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(connection.ReadResponse(), HasSubstr("up 1"));
}

TEST_F(AdminListenerTest, HeadersAndBodiesAreBounded) {
  EXPECT_THAT(Ask("GET /livez", "X: " + std::string(20'000, 'x') + "\r\n"),
              StartsWith("HTTP/1.1 431"));
  HttpConnection body(listener_->address());
  body.Send("POST /livez HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n");
  EXPECT_THAT(body.ReadResponse(), StartsWith("HTTP/1.1 413"));
}

TEST_F(AdminListenerTest, WhatIsNotHttpIsDropped) {
  HttpConnection connection(listener_->address());
  connection.Send("\x16\x03\x01 this is not http\r\n\r\n");
  EXPECT_EQ(connection.ReadToEnd(), "");
  EXPECT_THAT(Ask("GET /livez"), StartsWith("HTTP/1.1 200"));
}

TEST_F(AdminListenerTest, APortInUseIsNamed) {
  const auto second = AdminListener::Start(
      listener_->address(), {.metrics = [] { return ""; }, .ready = [] { return true; }});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr(listener_->address()));
}

TEST_F(AdminListenerTest, AHostThatDoesNotExistIsNamed) {
  const auto wrong = AdminListener::Start(
      "256.1.1.1:0", {.metrics = [] { return ""; }, .ready = [] { return true; }});
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.status().message(), HasSubstr("256.1.1.1:0"));
}

TEST_F(AdminListenerTest, EndsWithConnectionsOpen) {
  HttpConnection idle(listener_->address());
  HttpConnection half(listener_->address());
  half.Send("GET /li");
  EXPECT_THAT(Ask("GET /livez"), StartsWith("HTTP/1.1 200"));
  listener_.reset();
  EXPECT_EQ(half.ReadToEnd(), "");
}

TEST_F(AdminListenerTest, ManyClientsAtOnceAreAllAnswered) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) good += Ask("GET /livez").starts_with("HTTP/1.1 200");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 160);
}

}  // namespace
}  // namespace renga
