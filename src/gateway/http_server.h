// HttpServer: HTTP/1.1 for those who answer by exchanges.
//
// Event loops, each with one thread and its own connections; one more thread for work
// that would hold up a loop.
//
// Thread safety: every method may be called from any thread; the destructor once all
// exchanges' users are done.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gateway/http_exchange.h"
#include "renga/status.h"

namespace renga {

// One request that was answered, or that a client left.
struct HttpAccess {
  const HttpRequest* request = nullptr;  // nullptr: it never became one.
  int status = 0;                        // 0: nothing was sent.
  Duration elapsed{};                    // Since the request was there.
  int64_t sent_bytes = 0;
  bool complete = false;     // All of the answer is with the kernel.
  std::string request_id{};  // The X-Request-Id of the answer.
};

// Who hears what the server does. The calls come from its loops.
class HttpObserver {
 public:
  virtual ~HttpObserver() = default;
  virtual void OnConnections(int delta) = 0;  // One more (1) or less (-1) is open.
  virtual void OnStreams(int delta) = 0;      // The same for answers in pieces.
  virtual void OnEnd(const HttpAccess& access) = 0;
};

struct HttpServerOptions {
  std::string address;        // "host:port"; port 0: any free one.
  std::string address_field;  // What the configuration calls it.
  int loops = 2;
  int32_t max_header_bytes = 16 << 10;
  int64_t max_body_bytes = 8 << 20;
  int32_t max_connections = 1024;
  Duration idle_timeout = std::chrono::seconds(75);
  Duration read_timeout = std::chrono::seconds(15);
  Duration write_timeout = std::chrono::seconds(10);
  Duration quiet_interval = std::chrono::seconds(10);
  // The answer to what never becomes an exchange: 400, 408, 413, 431, 503, ...
  std::function<HttpResponse(int http_status, std::string_view why)> refusal;
  HttpObserver* observer = nullptr;  // Outlives the server; nullptr: nobody.
};

class HttpServer {
 public:
  // Listens and answers from now on. Fails with `address_field` if the address cannot be
  // had.
  static StatusOr<std::unique_ptr<HttpServer>> Start(HttpServerOptions options,
                                                     HttpHandler handler);
  // Close(). A thread that cannot be joined ends the process.
  ~HttpServer();  // NOLINT(bugprone-exception-escape)

  // The address really bound: "127.0.0.1:8080".
  const std::string& address() const;
  int64_t exchanges() const;  // Under way.

  // Runs `work` on the thread for long work, in order.
  void PostWork(std::function<void()> work);

  // From now on connections close after their answer; those that wait for a request close
  // at once.
  void StartDrain();
  // Calls OnStop of all responders.
  void StopExchanges();
  // False if some are under way at `deadline`.
  bool WaitIdle(TimePoint deadline);
  // Closes listener and connections (OnClosed of what is under way). The loops go on, for
  // those who still post to them.
  void CloseConnections();
  // CloseConnections, and joins the threads.
  void Close();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace renga
