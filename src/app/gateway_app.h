// GatewayApp: `renga gateway`, the HTTP API as a process of its own in front of one or
// several servers. Its own metrics and health are on admin.address.
//
// Thread safety: RequestStop from any thread, the rest from one.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "renga/config.h"
#include "renga/status.h"

namespace renga {

class GatewayApp {
 public:
  // `targets`: "host:port" of the servers' gRPC ports.
  GatewayApp(const Config& config, std::vector<std::string> targets);
  ~GatewayApp();

  // Listens; the servers may come later.
  Status Start();
  // Until RequestStop; then running requests get drain.timeout_ms to finish.
  void Run();
  void RequestStop();

  std::string address() const;        // Bound; after Start.
  std::string admin_address() const;  // The same.

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace renga
