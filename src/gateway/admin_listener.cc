// Boost.Beast: one io_context, one thread, one Session per connection.

#include "gateway/admin_listener.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

namespace renga {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr uint32_t kMaxHeaderBytes = 8192;
constexpr int kMaxConnections = 64;
constexpr std::chrono::seconds kIdleTimeout{10};
// After a failed accept (no file descriptors left): not at once again.
constexpr std::chrono::milliseconds kAcceptPause{100};

using Response = http::response<http::string_body>;

Response MakeResponse(const http::request<http::empty_body>& request, http::status status,
                      std::string body) {
  Response response(status, request.version());
  response.set(http::field::content_type, "text/plain; charset=utf-8");
  response.set(http::field::cache_control, "no-store");
  // An answer to HEAD has no body: it would be read as the start of the next answer.
  if (request.method() != http::verb::head) response.body() = std::move(body);
  response.keep_alive(request.keep_alive());
  response.prepare_payload();
  return response;
}

Response Answer(const http::request<http::empty_body>& request,
                const AdminHandlers& handlers) {
  std::string_view path(request.target().data(), request.target().size());
  const size_t mark = path.find('?');
  const std::string_view query = mark == path.npos ? "" : path.substr(mark + 1);
  path = path.substr(0, mark);
  const bool debug = path == "/debug/requests" && handlers.requests != nullptr;
  if (path != "/metrics" && path != "/livez" && path != "/readyz" && !debug) {
    return MakeResponse(request, http::status::not_found, "not found\n");
  }
  if (request.method() != http::verb::get) {
    Response response =
        MakeResponse(request, http::status::method_not_allowed, "only GET\n");
    response.set(http::field::allow, "GET");
    return response;
  }
  if (path == "/livez") return MakeResponse(request, http::status::ok, "live\n");
  if (path == "/readyz") {
    return handlers.ready()
               ? MakeResponse(request, http::status::ok, "ready\n")
               : MakeResponse(request, http::status::service_unavailable, "not ready\n");
  }
  if (debug) {
    if (!query.empty() && query != "slow=0" && query != "slow=1") {
      return MakeResponse(request, http::status::bad_request,
                          "the query can be slow=1 or slow=0\n");
    }
    Response trace =
        MakeResponse(request, http::status::ok, handlers.requests(query == "slow=1"));
    trace.set(http::field::content_type, "application/json");
    return trace;
  }
  Response response = MakeResponse(request, http::status::ok, handlers.metrics());
  response.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
  return response;
}

// One connection. Its pending operation owns it (and nothing else does).
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, const AdminHandlers& handlers, int& connections)
      : stream_(std::move(socket)), handlers_(handlers), connections_(connections) {
    ++connections_;
  }
  ~Session() { --connections_; }

  void Read() {
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(std::uint64_t{0});
    stream_.expires_after(kIdleTimeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, size_t) {
                       self->OnRead(error);
                     });
  }

 private:
  void OnRead(beast::error_code error) {
    if (error == http::error::header_limit || error == http::error::body_limit ||
        error == http::error::unexpected_body) {
      http::request<http::empty_body> request;
      request.version(11);
      request.keep_alive(false);
      response_ = MakeResponse(request,
                               error == http::error::header_limit
                                   ? http::status::request_header_fields_too_large
                                   : http::status::payload_too_large,
                               "too large\n");
    } else if (error) {
      return;  // Gone, timed out, or not HTTP.
    } else {
      response_ = Answer(parser_->get(), handlers_);
    }
    stream_.expires_after(kIdleTimeout);
    http::async_write(stream_, response_,
                      [self = shared_from_this()](beast::error_code failed, size_t) {
                        self->OnWritten(failed);
                      });
  }

  void OnWritten(beast::error_code error) {
    if (error) return;
    if (response_.keep_alive()) return Read();
    stream_.socket().shutdown(tcp::socket::shutdown_send, error);
  }

  beast::tcp_stream stream_;
  const AdminHandlers& handlers_;
  int& connections_;
  beast::flat_buffer buffer_{kMaxHeaderBytes * 2};
  std::optional<http::request_parser<http::empty_body>> parser_;
  Response response_;
};

std::string AddressText(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? '[' + host + ']' : host) + ':' +
         std::to_string(endpoint.port());
}

}  // namespace

class AdminListener::Server {
 public:
  explicit Server(AdminHandlers handlers) : handlers_(std::move(handlers)) {}

  ~Server() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  StatusOr<std::string> Bind(const std::string& address) {
    const size_t colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
    beast::error_code error;
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(host, port, tcp::resolver::passive, error);
    if (error || found.empty()) {
      return InvalidArgument("admin.address", address + ": " + error.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return Unavailable("cannot listen on " + address + ": " + error.message())
          .WithField("admin.address");
    }
    return AddressText(acceptor_.local_endpoint(error));
  }

  void Run() {
    Accept();
    thread_ = std::thread([this] { io_.run(); });
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (error) return AcceptLater();
      // Over the limit the connection is closed without an answer.
      if (connections_ < kMaxConnections) {
        socket.set_option(tcp::no_delay(true), error);  // Or the next answer waits 40 ms.
        std::make_shared<Session>(std::move(socket), handlers_, connections_)->Read();
      }
      Accept();
    });
  }

  void AcceptLater() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](beast::error_code) { Accept(); });
  }

  // The io_context goes first: what is still pending in it refers to the rest.
  const AdminHandlers handlers_;
  int connections_ = 0;  // Of the own thread.
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer pause_{io_};
  std::thread thread_;
};

StatusOr<std::unique_ptr<AdminListener>> AdminListener::Start(const std::string& address,
                                                              AdminHandlers handlers) {
  auto server = std::make_unique<Server>(std::move(handlers));
  StatusOr<std::string> bound = server->Bind(address);
  if (!bound.ok()) return bound.status();
  server->Run();
  return std::unique_ptr<AdminListener>(
      new AdminListener(std::move(server), *std::move(bound)));
}

AdminListener::AdminListener(std::unique_ptr<Server> server, std::string address)
    : server_(std::move(server)), address_(std::move(address)) {}

AdminListener::~AdminListener() = default;

}  // namespace renga
