// What is counted and logged of requests, over a real gateway and alone.

#include "gateway/gateway_observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/gateway/gateway_fixture.h"

namespace renga {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Count(const std::string& route, int code, int count) {
  return "renga_gateway_requests_total{code=\"" + std::to_string(code) + "\",route=\"" +
         route + "\"} " + std::to_string(count) + '\n';
}

class GatewayObserverTest : public GatewayTest {
 protected:
  GatewayObserverTest() { options_.metrics = &metrics_; }
  ~GatewayObserverTest() override { gateway_.reset(); }  // Before the metrics.

  // The end of a request is seen by its loop, after its client has the answer.
  std::string WaitFor(const std::string& part) {
    for (int i = 0; i < 2000; ++i) {
      if (metrics_.Serialize().find(part) != std::string::npos) break;
      Get("/health");
    }
    return metrics_.Serialize();
  }

  GatewayMetrics metrics_;
};

TEST_F(GatewayObserverTest, EachAnswerIsCountedByItsRouteAndStatus) {
  EXPECT_EQ(Chat().status, 200);
  EXPECT_EQ(Chat(R"(,"n":"x")").status, 400);
  EXPECT_EQ(Get("/made/up").status, 404);
  EXPECT_EQ(Get("/v1/models/nobody").status, 404);
  EXPECT_EQ(Get("/").status, 200);
  // Each connection's loop counts on its own.
  std::string text;
  for (const std::string& part :
       {Count("page", 200, 1), Count("/v1/chat/completions", 200, 1),
        Count("/v1/chat/completions", 400, 1), Count("/v1/models/*", 404, 1),
        Count("other", 404, 1)}) {
    text = WaitFor(part);
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("made")));
  EXPECT_THAT(text, Not(HasSubstr("renga_gateway_sent_bytes_total 0\n")));
  EXPECT_THAT(text, Not(HasSubstr("renga_gateway_received_bytes_total 0\n")));
}

TEST_F(GatewayObserverTest, WhatNeverBecameARequestIsCountedToo) {
  HttpClient client(address());
  client.Send("GET / HTTP/1.1\r\n\r\n");  // No Host.
  EXPECT_EQ(client.ReadReply().status, 400);
  EXPECT_THAT(WaitFor(Count("other", 400, 1)), HasSubstr(Count("other", 400, 1)));
}

TEST_F(GatewayObserverTest, AStreamIsOpenUntilItsEnd) {
  EXPECT_EQ(Chat(R"(,"stream":true)").status, 200);
  HttpClient open(address());
  open.Get("/health");
  EXPECT_EQ(open.ReadReply().status, 200);
  const std::string text = WaitFor(Count("/v1/chat/completions", 200, 1));
  EXPECT_THAT(text, HasSubstr("renga_gateway_streams 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("renga_gateway_connections 0\n")));
}

// ---- The log's line.

class AccessLogTest : public testing::Test {
 protected:
  std::string LineOf(const std::string& level, const HttpAccess& access) {
    EXPECT_TRUE(ConfigureLog("debug", "text").ok());
    testing::internal::CaptureStderr();
    GatewayObserver(nullptr, level).OnEnd(access);
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(AccessLogTest, HasThePathWithoutItsQueryAndNoBodyOrKey) {
  const HttpRequest request{.method = "POST",
                            .path = "/v1/completions",
                            .query = "secret-query",
                            .headers = {{"Authorization", "Bearer secret-key"}},
                            .body = "secret-body"};
  const std::string line = LineOf("info", {.request = &request,
                                           .status = 200,
                                           .elapsed = std::chrono::milliseconds(12),
                                           .sent_bytes = 345,
                                           .complete = true,
                                           .request_id = "req-1"});
  EXPECT_THAT(line, HasSubstr("http method=POST path=/v1/completions status=200 ms=12 "
                              "bytes=345 complete=yes id=req-1"));
  EXPECT_THAT(line, Not(HasSubstr("secret")));
}

TEST_F(AccessLogTest, APathCannotForgeAnotherField) {
  const HttpRequest request{
      .method = "GET", .path = "/x status=200\nfake\x1b[2J", .query = ""};
  const std::string line = LineOf("debug", {.request = &request, .status = 404});
  EXPECT_THAT(line, HasSubstr("path=/x?status=200?fake?[2J status=404"));
}

TEST_F(AccessLogTest, OffItIsSilent) {
  EXPECT_EQ(LineOf("off", {.status = 200}), "");
  EXPECT_THAT(LineOf("info", {.status = 408}), HasSubstr("status=408"));
}

}  // namespace
}  // namespace renga
