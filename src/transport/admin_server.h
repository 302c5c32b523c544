// AdminServer: renga.v1.Admin on a gRPC listener of its own, apart from client traffic.
//
//   Listen -> Serve(control) ... -> Shutdown()
//
// It listens before the model is loaded: until Serve() every call is refused UNAVAILABLE.
//
// Thread safety: one thread. The ServerControl must work until Shutdown has returned.

#pragma once

#include <memory>
#include <string>

#include "renga/server_control.h"
#include "renga/status.h"
#include "transport/api_keys.h"

namespace renga {

class AdminServer {
 public:
  // Binds the address (port 0: any free one). Fails with field "admin.grpc_address" if it
  // can't be had. With `keys` every call wants one of the tenant "admin", and there is no
  // reflection.
  static StatusOr<std::unique_ptr<AdminServer>> Listen(
      const std::string& address, std::shared_ptr<const ApiKeys> keys = nullptr);
  ~AdminServer();  // Shutdown(), if that was not done.

  int port() const;                    // The bound port.
  const std::string& address() const;  // "127.0.0.1:9465", with the bound port.

  // From now on calls reach `control`.
  void Serve(ServerControl& control);

  // Closes the listener and waits for running calls.
  void Shutdown();

 private:
  struct Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace renga
