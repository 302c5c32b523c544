// The HTTP server as a whole: start, drain, stop, work apart.

#include "gateway/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "gateway/http_error.h"
#include "tests/gateway/http_client.h"

namespace renga {
namespace {

using testing::HasSubstr;

// Answers when it is told, from any thread; or with what OnStop brings.
class LaterResponder final : public HttpResponder {
 public:
  explicit LaterResponder(std::shared_ptr<HttpExchange> exchange)
      : exchange_(std::move(exchange)) {}
  void Answer() {
    exchange_->Post([exchange = exchange_] { exchange->Respond({.body = "late"}); });
  }
  void OnStop() override { exchange_->Respond({.status = 503, .body = "stopped"}); }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
};

class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.address = "127.0.0.1:0";
    options_.address_field = "gateway.address";
    options_.refusal = HttpErrorResponse;
    auto started =
        HttpServer::Start(options_, [this](auto exchange) { return Handle(exchange); });
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    server_ = *std::move(started);
  }

  std::shared_ptr<HttpResponder> Handle(const std::shared_ptr<HttpExchange>& exchange) {
    if (exchange->request().path != "/later") {
      exchange->Respond({.body = "now"});
      return nullptr;
    }
    auto responder = std::make_shared<LaterResponder>(exchange);
    later_.set_value(responder);
    return responder;
  }

  HttpServerOptions options_;
  std::promise<std::shared_ptr<LaterResponder>> later_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, APortInUseAndAHostThatIsNoneAreNamed) {
  for (const std::string& address :
       {server_->address(), std::string("256.1.1.1:0"), std::string("nonsense")}) {
    HttpServerOptions options = options_;
    options.address = address;
    const auto second = HttpServer::Start(options, [](auto) { return nullptr; });
    ASSERT_FALSE(second.ok()) << address;
    EXPECT_EQ(second.status().field(), "gateway.address");
    EXPECT_THAT(second.status().message(), HasSubstr(address));
  }
}

TEST_F(HttpServerTest, ManyClientsAtOnceAreAllAnswered) {
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      HttpClient client(server_->address());
      for (int i = 0; i < 50; ++i) {
        client.Get("/x");
        good += client.ReadReply().body == "now";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 400);
}

TEST_F(HttpServerTest, DrainingClosesIdleConnectionsAndFinishesWhatRuns) {
  HttpClient idle(server_->address());
  idle.Get("/x");
  EXPECT_EQ(idle.ReadReply().Header("Connection"), "keep-alive");
  HttpClient busy(server_->address());
  busy.Get("/later");
  const auto responder = later_.get_future().get();
  server_->StartDrain();
  EXPECT_TRUE(idle.AtEnd());
  EXPECT_FALSE(server_->WaitIdle(TimePoint::min()));
  HttpClient fresh(server_->address());
  fresh.Get("/x");
  EXPECT_EQ(fresh.ReadReply().Header("Connection"), "close");
  responder->Answer();
  EXPECT_EQ(busy.ReadReply().body, "late");
  EXPECT_TRUE(busy.AtEnd());
  EXPECT_TRUE(server_->WaitIdle(TimePoint::max()));
}

TEST_F(HttpServerTest, StoppingTellsThoseWhoAnswer) {
  HttpClient busy(server_->address());
  busy.Get("/later");
  later_.get_future().wait();
  server_->StopExchanges();
  EXPECT_EQ(busy.ReadReply().body, "stopped");
  EXPECT_TRUE(server_->WaitIdle(TimePoint::max()));
}

TEST_F(HttpServerTest, EndsWithConnectionsOpenAndRequestsHalfRead) {
  HttpClient idle(server_->address());
  HttpClient half(server_->address());
  half.Send("GET /li");
  HttpClient busy(server_->address());
  busy.Get("/later");
  const auto responder = later_.get_future().get();
  server_->Close();
  EXPECT_TRUE(idle.AtEnd());
  EXPECT_TRUE(half.AtEnd());
  EXPECT_TRUE(busy.AtEnd());
}

TEST_F(HttpServerTest, WorkRunsInOrderApartFromTheLoops) {
  std::promise<void> begin;
  std::promise<std::vector<int>> done;
  std::vector<int> order;
  server_->PostWork([&] {
    begin.get_future().wait();
    order.push_back(1);
  });
  server_->PostWork([&] {
    order.push_back(2);
    done.set_value(order);
  });
  HttpClient client(server_->address());
  client.Get("/x");
  EXPECT_EQ(client.ReadReply().status, 200);  // While the work waits.
  begin.set_value();
  EXPECT_THAT(done.get_future().get(), testing::ElementsAre(1, 2));
}

}  // namespace
}  // namespace renga
