#include "transport/admin_server.h"

#include <utility>

#include "base/status_macros.h"
#include "transport/admin_service.h"
#include "transport/grpc_listener.h"

namespace renga {

struct AdminServer::Impl {
  explicit Impl(std::shared_ptr<const ApiKeys> keys) : service(std::move(keys)) {}

  AdminService service;
  GrpcListener listener;
};

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

AdminServer::~AdminServer() { Shutdown(); }

StatusOr<std::unique_ptr<AdminServer>> AdminServer::Listen(
    const std::string& address, std::shared_ptr<const ApiKeys> keys) {
  const bool open = keys == nullptr;
  auto impl = std::make_unique<Impl>(std::move(keys));
  RENGA_ASSIGN_OR_RETURN(impl->listener, ListenGrpc({.address = address,
                                                     .field = "admin.grpc_address",
                                                     .reflection = open,
                                                     .services = {&impl->service}}));
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

int AdminServer::port() const { return impl_->listener.port; }

const std::string& AdminServer::address() const { return impl_->listener.address; }

void AdminServer::Serve(ServerControl& control) { impl_->service.Open(control); }

void AdminServer::Shutdown() {
  if (impl_->listener.server == nullptr) return;
  ShutdownGrpc(*impl_->listener.server);
  impl_->listener.server.reset();
}

}  // namespace renga
