#include "gateway/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gateway/server_connection.h"

namespace renga {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// After a failed accept (no file descriptors left): not at once again.
constexpr std::chrono::milliseconds kAcceptPause{100};
// Over max_connections: so many more get a 503, beyond that none.
constexpr int kRefusedConnections = 64;
// Enough for a burst of text; more would only hide from us that a client does not read.
constexpr int kSendBufferBytes = 128 << 10;

std::string AddressText(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? '[' + host + ']' : host) + ':' +
         std::to_string(endpoint.port());
}

// One thread; its connections belong to it.
struct Loop {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  std::unordered_set<std::shared_ptr<ServerConnection>> connections;
  std::thread thread;

  // Runs `task` for every connection, on the loop, and waits for it.
  template <class Task>
  void ForEach(Task task) {
    std::promise<void> done;
    asio::post(io, [this, &task, &done] {
      // A task may end a connection.
      const std::vector<std::shared_ptr<ServerConnection>> all(connections.begin(),
                                                               connections.end());
      for (const auto& connection : all) task(*connection);
      done.set_value();
    });
    done.get_future().wait();
  }
};

}  // namespace

struct HttpServer::Impl {
  Impl(HttpServerOptions o, HttpHandler h)
      : options(std::move(o)), handler(std::move(h)) {}

  Status Bind();
  void Run();
  void Accept();
  void AcceptLater();
  void Welcome(Loop& loop, tcp::socket socket);
  void CloseConnections();
  void Join();

  // The loops go last: sockets, timers and the acceptor refer to them.
  std::vector<std::unique_ptr<Loop>> loops;  // The last one is for work.
  const HttpServerOptions options;
  const HttpHandler handler;
  ConnectionContext context{.options = options, .handler = handler};
  std::unique_ptr<tcp::acceptor> acceptor;    // Of the first loop.
  std::unique_ptr<asio::steady_timer> pause;  // Likewise.
  size_t next_loop = 0;                       // Likewise.
  bool accepting = true;                      // Likewise.
  std::atomic<int> connection_count{0};
  std::string address;
  bool closed = false;
};

Status HttpServer::Impl::Bind() {
  const size_t colon = options.address.rfind(':');
  std::string host = options.address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const std::string port =
      colon == std::string::npos ? "" : options.address.substr(colon + 1);
  error_code error;
  tcp::resolver resolver(loops[0]->io);
  const auto found = resolver.resolve(host, port, tcp::resolver::passive, error);
  if (error || found.empty()) {
    return InvalidArgument(options.address_field,
                           options.address + ": " + error.message());
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor->open(endpoint.protocol(), error);
  if (!error) acceptor->set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Unavailable("cannot listen on " + options.address + ": " + error.message())
        .WithField(options.address_field);
  }
  address = AddressText(acceptor->local_endpoint(error));
  return OkStatus();
}

void HttpServer::Impl::Run() {
  Accept();
  for (const auto& loop : loops) {
    loop->thread = std::thread([&io = loop->io] { io.run(); });
  }
}

void HttpServer::Impl::Accept() {
  Loop& loop = *loops[next_loop];
  next_loop = (next_loop + 1) % static_cast<size_t>(options.loops);
  acceptor->async_accept(loop.io, [this, &loop](error_code error, tcp::socket socket) {
    if (!accepting) return;
    if (error) return AcceptLater();
    // A socket may be moved to its own loop, but not shared with it.
    asio::post(loop.io,
               [this, &loop, moved = std::make_shared<tcp::socket>(std::move(socket))] {
                 Welcome(loop, std::move(*moved));
               });
    Accept();
  });
}

void HttpServer::Impl::AcceptLater() {
  pause->expires_after(kAcceptPause);
  pause->async_wait([this](error_code) {
    if (accepting) Accept();
  });
}

void HttpServer::Impl::Welcome(Loop& loop, tcp::socket socket) {
  const int count = ++connection_count;
  if (count > options.max_connections + kRefusedConnections) {
    --connection_count;
    return;
  }
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);  // Or the next event waits 40 ms.
  socket.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
  auto slot = std::make_shared<std::weak_ptr<ServerConnection>>();
  auto connection = std::make_shared<ServerConnection>(
      loop.io, std::move(socket), context, [this, &loop, slot] {
        --connection_count;
        if (options.observer != nullptr) options.observer->OnConnections(-1);
        loop.connections.erase(slot->lock());
      });
  *slot = connection;
  if (options.observer != nullptr) options.observer->OnConnections(1);
  loop.connections.insert(connection);
  count > options.max_connections ? connection->StartRefused() : connection->Start();
}

void HttpServer::Impl::CloseConnections() {
  std::promise<void> done;
  asio::post(loops[0]->io, [this, &done] {
    accepting = false;
    error_code ignored;
    acceptor->close(ignored);
    pause->cancel();
    done.set_value();
  });
  done.get_future().wait();
  for (const auto& loop : loops) {
    loop->ForEach([](ServerConnection& connection) { connection.Close(); });
  }
}

void HttpServer::Impl::Join() {
  for (const auto& loop : loops) {
    loop->guard.reset();
    loop->io.stop();
    if (loop->thread.joinable()) loop->thread.join();
  }
}

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options,
                                                        HttpHandler handler) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  for (int i = 0; i <= impl->options.loops; ++i) {
    impl->loops.push_back(std::make_unique<Loop>());
  }
  impl->acceptor = std::make_unique<tcp::acceptor>(impl->loops[0]->io);
  impl->pause = std::make_unique<asio::steady_timer>(impl->loops[0]->io);
  if (Status status = impl->Bind(); !status.ok()) return status;
  impl->Run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

// NOLINTNEXTLINE(bugprone-exception-escape)
HttpServer::~HttpServer() { Close(); }

const std::string& HttpServer::address() const { return impl_->address; }

int64_t HttpServer::exchanges() const { return impl_->context.exchanges.count(); }

void HttpServer::PostWork(std::function<void()> work) {
  asio::post(impl_->loops.back()->io, std::move(work));
}

void HttpServer::StartDrain() {
  impl_->context.draining = true;
  for (const auto& loop : impl_->loops) {
    loop->ForEach([](ServerConnection& connection) { connection.CloseIfIdle(); });
  }
}

void HttpServer::StopExchanges() {
  for (const auto& loop : impl_->loops) {
    loop->ForEach([](ServerConnection& connection) { connection.StopExchange(); });
  }
}

bool HttpServer::WaitIdle(TimePoint deadline) {
  return impl_->context.exchanges.WaitUntilNone(deadline);
}

void HttpServer::CloseConnections() {
  if (!impl_->closed) impl_->CloseConnections();
}

void HttpServer::Close() {
  if (impl_->closed) return;
  impl_->CloseConnections();
  impl_->closed = true;
  impl_->Join();
}

}  // namespace renga
