// ServerApp: builds every part, in order; starts and stops them; the only place that
// knows them all.
//
// Start: keys -> ports -> model file -> tokenizer, template -> device -> weights -> KV
// pool -> engine thread -> warm-up -> memory check -> ready. A port in use, a bad file of
// keys or a bad model is an error before any expensive work. Run: keeps health up to date
// until it is told to stop, then drains: running and queued requests finish (at most
// drain.timeout_ms), new ones are refused.
//
// Thread safety: RequestStop and Ready from any thread, the addresses too once the ports
// are open, the rest from one thread.
// Invariants: the engine thread runs until the transport has no call left.

#pragma once

#include <memory>
#include <ostream>
#include <string>

#include "app/backend_factory.h"
#include "renga/config.h"
#include "renga/status.h"

namespace renga {

class ServerApp {
 public:
  // `progress`: where a bar shows how far the model is loaded; nullptr: nowhere.
  explicit ServerApp(const Config& config, BackendFactory factory = MakeDefaultBackend,
                     std::ostream* progress = nullptr);
  ~ServerApp();

  // Returns when a request sent now would be served, or with the reason why not. After
  // RequestStop it returns early with OK; Run then returns at once.
  Status Start();
  // Until RequestStop, or until the engine has given up (then not OK); drains.
  Status Run();
  // As a first SIGTERM does.
  void RequestStop();

  // The bound addresses, "127.0.0.1:50051"; after Start.
  std::string grpc_address() const;
  std::string gateway_address() const;  // Empty: there is none.
  std::string admin_address() const;
  std::string admin_grpc_address() const;
  bool Ready() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace renga
