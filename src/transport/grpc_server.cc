#include "transport/grpc_server.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "base/status_macros.h"
#include "transport/grpc_listener.h"
#include "transport/grpc_service.h"
#include "transport/health_service.h"

namespace renga {

struct GrpcServer::Impl {
  Impl(const GrpcSettings& settings, std::shared_ptr<const ApiKeys> keys)
      : inference(settings, std::move(keys)) {}

  InferenceService inference;
  HealthService health;
  GrpcListener listener;
  std::atomic<bool> draining{false};
};

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GrpcServer::~GrpcServer() { Shutdown(); }

StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Listen(
    const GrpcSettings& settings, std::shared_ptr<const ApiKeys> keys) {
  const bool open = keys == nullptr;
  auto impl = std::make_unique<Impl>(settings, std::move(keys));
  RENGA_ASSIGN_OR_RETURN(impl->listener,
                         ListenGrpc({.address = settings.address,
                                     .field = "grpc.address",
                                     .max_message_bytes = settings.max_message_bytes,
                                     .reflection = open,
                                     .services = {&impl->inference, &impl->health}}));
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

std::shared_ptr<grpc::Channel> GrpcServer::InProcessChannel(
    const grpc::ChannelArguments& arguments) {
  return impl_->listener.server->InProcessChannel(arguments);
}

int GrpcServer::port() const { return impl_->listener.port; }

const std::string& GrpcServer::address() const { return impl_->listener.address; }

void GrpcServer::Serve(GenerationService& service, ServerMetrics& metrics) {
  impl_->inference.Open(service, metrics);
}

void GrpcServer::SetServing(bool serving) {
  impl_->health.SetServing(serving && !impl_->draining);
  // Drain may have come between the two reads.
  if (impl_->draining) impl_->health.SetServing(false);
}

int64_t GrpcServer::active_calls() const { return impl_->inference.gate().inside(); }

bool GrpcServer::Drain(TimePoint deadline) {
  impl_->draining = true;
  impl_->health.SetServing(false);
  impl_->inference.Close();
  return impl_->inference.gate().WaitUntilEmpty(deadline);
}

void GrpcServer::Shutdown() {
  if (impl_->listener.server == nullptr) return;
  Drain(std::chrono::steady_clock::now());
  impl_->health.EndWatches();
  ShutdownGrpc(*impl_->listener.server);
  impl_->listener.server.reset();
}

}  // namespace renga
