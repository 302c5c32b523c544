// AdminListener: GET /metrics, /livez, /readyz and /debug/requests over HTTP/1.1, apart
// from client traffic.
//
// It answers as soon as its port is open, also while the model loads: /livez says 200 as
// long as the process works, /readyz 200 only while a request sent now would be served.
//
// Invariants: headers are at most 8 KiB, there is no body, a connection that neither asks
// nor reads for 10 s is closed, and at most 64 connections are open.
//
// Thread rule: one own thread runs everything, the handlers included; they must not
// block.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "renga/status.h"

namespace renga {

struct AdminHandlers {
  std::function<std::string()> metrics;  // Prometheus text exposition.
  std::function<bool()> ready;
  // /debug/requests: the last requests as a Chrome trace; with ?slow=1 slow ones alone.
  // Absent: there is no such path.
  std::function<std::string(bool slow)> requests{};
};

class AdminListener {
 public:
  // Binds "host:port" (port 0: any free one) and starts to answer. A port in use is
  // UNAVAILABLE with the address in the message.
  static StatusOr<std::unique_ptr<AdminListener>> Start(const std::string& address,
                                                        AdminHandlers handlers);
  // Closes all connections and joins the thread.
  ~AdminListener();

  // The address really bound: "127.0.0.1:9464".
  const std::string& address() const { return address_; }

 private:
  class Server;
  AdminListener(std::unique_ptr<Server> server, std::string address);

  const std::unique_ptr<Server> server_;
  const std::string address_;
};

}  // namespace renga
