// Connections of the HTTP server over raw sockets: limits, timeouts, and what must never
// be taken for a request.

#include "gateway/server_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "gateway/http_error.h"
#include "gateway/http_server.h"
#include "tests/gateway/http_client.h"

namespace renga {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kGet[] = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n";

// Never answers; says when it is told that the client has gone.
class WaitingResponder final : public HttpResponder {
 public:
  explicit WaitingResponder(std::promise<void>& closed) : closed_(closed) {}
  void OnClosed() override { closed_.set_value(); }

 private:
  std::promise<void>& closed_;
};

// Streams a fixed number of pieces.
class PiecesResponder final : public HttpResponder {
 public:
  explicit PiecesResponder(std::shared_ptr<HttpExchange> exchange)
      : exchange_(std::move(exchange)) {
    exchange_->BeginStream({});
    exchange_->Write("piece0 ");
  }
  void OnWritten() override {
    if (++pieces_ < 3) return exchange_->Write("piece" + std::to_string(pieces_) + ' ');
    exchange_->EndStream();
  }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
  int pieces_ = 0;
};

class ServerConnectionTest : public testing::Test {
 protected:
  ServerConnectionTest() {
    options_.address = "127.0.0.1:0";
    options_.address_field = "gateway.address";
    options_.max_body_bytes = 1000;
    options_.max_header_bytes = 4096;
    options_.refusal = HttpErrorResponse;
  }
  ~ServerConnectionTest() override { server_.reset(); }

  std::string address() {
    if (server_ == nullptr) {
      auto started = HttpServer::Start(
          options_, [this](auto exchange) { return Handle(std::move(exchange)); });
      EXPECT_TRUE(started.ok()) << started.status().ToString();
      server_ = *std::move(started);
    }
    return server_->address();
  }

  std::shared_ptr<HttpResponder> Handle(std::shared_ptr<HttpExchange> exchange) {
    ++handled_;
    const HttpRequest& request = exchange->request();
    if (request.path == "/wait") {
      waiting_.set_value();
      return std::make_shared<WaitingResponder>(closed_);
    }
    if (request.path == "/pieces") return std::make_shared<PiecesResponder>(exchange);
    if (request.path == "/headers") {
      std::string names;
      for (const HttpHeader& header : request.headers) names += header.name + ' ';
      exchange->Respond({.body = names});
      return nullptr;
    }
    exchange->Respond({.body = request.method + ' ' + request.path + ' ' + request.body});
    return nullptr;
  }

  // Sends `bytes` on a new connection; the answer, which must close it.
  HttpReply RefusalOf(const std::string& bytes) {
    HttpClient client(address());
    client.Send(bytes);
    HttpReply reply = client.ReadReply();
    EXPECT_EQ(reply.Header("Connection"), "close") << bytes;
    EXPECT_TRUE(client.AtEnd()) << bytes;
    return reply;
  }

  HttpServerOptions options_;
  std::promise<void> waiting_;
  std::promise<void> closed_;
  std::atomic<int> handled_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ServerConnectionTest, OneConnectionServesManyRequestsInOrder) {
  HttpClient client(address());
  client.Send(std::string(kGet) +
              "POST /b%20c?q=1 HTTP/1.1\r\nHost: x\r\n"
              "Content-Length: 3\r\n\r\nabc" +
              kGet);
  EXPECT_EQ(client.ReadReply().body, "GET /echo ");
  EXPECT_EQ(client.ReadReply().body, "POST /b c abc");
  EXPECT_EQ(client.ReadReply().body, "GET /echo ");
}

TEST_F(ServerConnectionTest, ARequestMayComeByteByByte) {
  HttpClient client(address());
  const std::string request =
      "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "1\r\na\r\n2;ext=1\r\nbc\r\n0\r\nTrailer: t\r\n\r\n";
  for (const char c : request) client.Send(std::string(1, c));
  EXPECT_EQ(client.ReadReply().body, "POST /x abc");
}

TEST_F(ServerConnectionTest, AStreamIsChunkedAndForHttp10EndsWithTheConnection) {
  HttpClient client(address());
  client.Get("/pieces");
  const HttpReply reply = client.ReadReply();
  EXPECT_EQ(reply.Header("Transfer-Encoding"), "chunked");
  EXPECT_EQ(reply.body, "piece0 piece1 piece2 ");
  client.Send(kGet);
  EXPECT_EQ(client.ReadReply().status, 200);

  HttpClient old(address());
  old.Send("GET /pieces HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.ReadHead().Header("Connection"), "close");
  EXPECT_EQ(old.ReadToEnd(), "piece0 piece1 piece2 ");
}

TEST_F(ServerConnectionTest, TheAnswerToHeadHasTheLengthButNoBody) {
  HttpClient client(address());
  client.Get("/echo", "", "HEAD");
  EXPECT_EQ(client.ReadReply(true).Header("Content-Length"), "11");
  client.Send(kGet);
  EXPECT_EQ(client.ReadReply().body, "GET /echo ");
}

TEST_F(ServerConnectionTest, WhoWaitsForAContinueGetsIt) {
  HttpClient client(address());
  client.Send(
      "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("abc");
  EXPECT_EQ(client.ReadReply().body, "POST /x abc");
}

TEST_F(ServerConnectionTest, AConnectionClosesWhenTheClientWants) {
  HttpClient client(address());
  client.Get("/echo", "Connection: close\r\n");
  EXPECT_EQ(client.ReadReply().Header("Connection"), "close");
  EXPECT_TRUE(client.AtEnd());
}

// ---- Sizes ---------------------------------------------------------------------------

TEST_F(ServerConnectionTest, ABodyAtTheLimitIsReadAndOneAboveIsRefusedUnread) {
  HttpClient client(address());
  client.Post("/x", std::string(1000, 'a'));
  EXPECT_EQ(client.ReadReply().body.size(), 1000u + 8);
  for (const char* length : {"1001", "2147483648", "9223372036854775808"}) {
    const HttpReply reply = RefusalOf("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                                      std::string(length) + "\r\n\r\n");
    EXPECT_EQ(reply.status, 413) << length;
    EXPECT_THAT(reply.body, HasSubstr("1000 bytes"));
  }
}

TEST_F(ServerConnectionTest, LengthsThatAreNoneAreRefused) {
  for (const char* lengths :
       {"Content-Length: -1\r\n", "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n", "Content-Length: 3, 3\r\n",
        "Content-Length: 99999999999999999999999\r\n", "Content-Length: 0x3\r\n",
        "Content-Length:\r\n", "Content-Length: 3 3\r\n", "Content-Length: +3\r\n"}) {
    const HttpReply reply =
        RefusalOf("POST /x HTTP/1.1\r\nHost: x\r\n" + std::string(lengths) + "\r\nabc");
    EXPECT_EQ(reply.status, 400) << lengths;
  }
  EXPECT_EQ(handled_, 0);
}

TEST_F(ServerConnectionTest, ChunksAreBoundedLikeOtherBodies) {
  const std::string head =
      "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string chunks;
  for (int i = 0; i < 1000; ++i) chunks += "1\r\na\r\n";
  HttpClient client(address());
  client.Send(head + chunks + "0\r\n\r\n");
  EXPECT_EQ(client.ReadReply().body.size(), 1000u + 8);
  EXPECT_EQ(RefusalOf(head + chunks + "1\r\na\r\n0\r\n\r\n").status, 413);
  EXPECT_EQ(RefusalOf(head + "FFFFFFFFFFFFFFFF\r\n").status, 413);
  EXPECT_EQ(RefusalOf(head + "FFFFFFFFFFFFFFFFF\r\n").status, 400);
  EXPECT_EQ(RefusalOf(head + "-1\r\n").status, 400);
}

TEST_F(ServerConnectionTest, LargeHeadersAreRefused) {
  EXPECT_EQ(
      RefusalOf("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(5000, 'x') + "\r\n\r\n")
          .status,
      431);
  std::string many = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 2000; ++i) many += "a: b\r\n";
  EXPECT_EQ(RefusalOf(many + "\r\n").status, 431);
  EXPECT_EQ(RefusalOf("GET /" + std::string(5000, 'x')).status, 431);
}

// No piece of them that is read at once is too large.
TEST_F(ServerConnectionTest, HeadersThatComeInPiecesAreBoundedTogether) {
  options_.max_header_bytes = 16 << 10;
  std::string many = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 5000; ++i) many += "a: b\r\n";
  EXPECT_EQ(RefusalOf(many + "\r\n").status, 431);
  EXPECT_EQ(handled_, 0);
}

// What a proxy strips from the headers, or adds to them, must not come back behind the
// body.
TEST_F(ServerConnectionTest, TrailersAreNoHeaders) {
  HttpClient client(address());
  client.Send(
      "POST /headers HTTP/1.1\r\nHost: x\r\nX-Own: 1\r\nTransfer-Encoding: "
      "chunked\r\n\r\n"
      "2\r\nab\r\n0\r\nX-Tenant-Id: other\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.ReadReply().body, "Host X-Own Transfer-Encoding ");
  client.Send(kGet);  // Nor do they close the connection.
  EXPECT_EQ(client.ReadReply().status, 200);
}

// A refused body is still on its way when the answer goes out: a connection closed at
// once would be reset, and some systems then lose the answer.
TEST_F(ServerConnectionTest, TheRefusalReachesAClientThatIsStillSending) {
  HttpClient client(address());
  client.Send("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(client.ReadReply().status, 413);
  const std::string part(100'000, 'x');
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(client.Send(part)) << i;
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(handled_, 0);
}

// ---- What could be read in two ways
// ----------------------------------------------------

TEST_F(ServerConnectionTest, AmbiguousRequestsAreRefusedAndTheConnectionCloses) {
  const std::string post = "POST /x HTTP/1.1\r\nHost: x\r\n";
  const std::string smuggled = "\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const char* headers :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n", "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding : chunked\r\n", "Content-Length : 5\r\n",
        "Transfer-Encoding: xchunked\r\n", "X\r\n", "Host: y\r\n",
        "Transfer-Encoding:\x0b"
        "chunked\r\n"}) {
    const HttpReply reply = RefusalOf(post + headers + smuggled);
    EXPECT_GE(reply.status, 400) << headers;
    EXPECT_NE(reply.status, 404) << headers;
  }
  EXPECT_EQ(
      RefusalOf("POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n" + smuggled).status,
      400);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\n\r\n").status, 400);  // No host.
  EXPECT_EQ(handled_, 0);
}

TEST_F(ServerConnectionTest, MalformedRequestsAreRefusedAndTheServerLives) {
  for (const char* bytes :
       {"\x16\x03\x01 not http\r\n\r\n", "GET\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\nHost: x\n\n",
        "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n", "GET echo HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nExpect: a-miracle\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\n\r\n"}) {
    EXPECT_GE(RefusalOf(bytes).status, 400) << bytes;
  }
  EXPECT_EQ(handled_, 0);
  HttpClient client(address());
  client.Send(kGet);
  EXPECT_EQ(client.ReadReply().status, 200);
}

// ---- Time and number
// -------------------------------------------------------------------

TEST_F(ServerConnectionTest, ARequestThatDoesNotComeInTimeIsRefused) {
  options_.read_timeout = milliseconds(50);
  EXPECT_EQ(RefusalOf("GET / HT").status, 408);
  EXPECT_EQ(
      RefusalOf("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc").status,
      408);
  EXPECT_EQ(handled_, 0);
}

TEST_F(ServerConnectionTest, AnIdleConnectionIsClosedWithoutAWord) {
  options_.idle_timeout = milliseconds(50);
  HttpClient silent(address());
  EXPECT_TRUE(silent.AtEnd());
  HttpClient after_one(address());
  after_one.Send(kGet);
  EXPECT_EQ(after_one.ReadReply().status, 200);
  EXPECT_TRUE(after_one.AtEnd());
}

TEST_F(ServerConnectionTest, AboveTheLimitConnectionsAreRefused) {
  options_.max_connections = 2;
  HttpClient first(address());
  HttpClient second(address());
  for (HttpClient* client : {&first, &second}) {
    client->Send(kGet);
    EXPECT_EQ(client->ReadReply().status, 200);
  }
  HttpClient third(address());
  EXPECT_EQ(third.ReadReply().status, 503);
  EXPECT_TRUE(third.AtEnd());
  third.Close();
  first.Close();
  // The place becomes free when the server has seen it.
  for (int status = 503; status != 200;) {
    HttpClient next(address());
    next.Send(kGet);
    status = next.ReadReply().status;
  }
}

TEST_F(ServerConnectionTest, AClientThatGoesIsNoticedAtOnce) {
  HttpClient client(address());
  client.Get("/wait");
  waiting_.get_future().wait();
  client.Send(kGet);  // Something early must not hide it.
  client.Close();
  closed_.get_future().wait();
  EXPECT_TRUE(server_->WaitIdle(TimePoint::max()));
}

TEST_F(ServerConnectionTest, AnEarlyFloodIsNotReadAndDoesNotHideTheEnd) {
  HttpClient client(address());
  client.Get("/wait");
  waiting_.get_future().wait();
  std::thread sender([&client] { client.Send(std::string(64 << 20, 'x')); });
  server_->CloseConnections();  // Ends it: the sender's socket is reset.
  closed_.get_future().wait();
  sender.join();
}

}  // namespace
}  // namespace renga
