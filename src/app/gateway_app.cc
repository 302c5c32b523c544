#include "app/gateway_app.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "gateway/admin_listener.h"
#include "gateway/http_gateway.h"
#include "metrics/gateway_metrics.h"

namespace renga {

struct GatewayApp::Impl {
  Impl(const Config& c, std::vector<std::string> t) : config(c), targets(std::move(t)) {}

  const Config config;
  const std::vector<std::string> targets;
  GatewayMetrics metrics;
  std::unique_ptr<HttpGateway> gateway;
  std::unique_ptr<AdminListener> admin;

  Mutex mutex;
  CondVar changed;
  bool stop RENGA_GUARDED_BY(mutex) = false;
  std::atomic<bool> ready{false};
};

GatewayApp::GatewayApp(const Config& config, std::vector<std::string> targets)
    : impl_(std::make_unique<Impl>(config, std::move(targets))) {}

GatewayApp::~GatewayApp() = default;

Status GatewayApp::Start() {
  const Config& config = impl_->config;
  if (config.gateway.address.empty()) {
    return InvalidArgument("gateway.address", "is required: where to listen");
  }
  std::vector<GatewayTarget> targets;
  for (const std::string& target : impl_->targets) {
    if (target.find(':') == std::string::npos) {
      return InvalidArgument("--target", "must be host:port, not '" + target + "'");
    }
    targets.emplace_back(MakeTargetChannel(target, std::chrono::milliseconds(
                                                       config.gateway.target_ping_ms)),
                         target);
  }
  // Whether keys are wanted is the servers' to say.
  RENGA_ASSIGN_OR_RETURN(
      impl_->gateway,
      HttpGateway::Start(
          config.gateway, targets,
          {.write_timeout = std::chrono::milliseconds(config.grpc.write_timeout_ms),
           .metrics = &impl_->metrics}));
  RENGA_ASSIGN_OR_RETURN(
      impl_->admin,
      AdminListener::Start(
          config.admin.address,
          {.metrics = [impl = impl_.get()] { return impl->metrics.Serialize(); },
           .ready = [impl = impl_.get()] { return impl->ready.load(); }}));
  impl_->ready = true;
  LogInfo("listening", {{"gateway", std::string_view(impl_->gateway->address())},
                        {"admin", std::string_view(impl_->admin->address())},
                        {"targets", targets.size()}});
  return OkStatus();
}

void GatewayApp::Run() {
  {
    MutexLock lock(impl_->mutex);
    while (!impl_->stop) impl_->changed.Wait(impl_->mutex);
  }
  HttpGateway& gateway = *impl_->gateway;
  impl_->ready = false;
  gateway.StartDrain();
  LogInfo("draining", {{"requests", gateway.active_requests()}});
  const TimePoint deadline = std::chrono::steady_clock::now() +
                             std::chrono::milliseconds(impl_->config.drain.timeout_ms);
  if (!gateway.WaitIdle(deadline)) {
    LogWarn("drain_timeout", {{"requests", gateway.active_requests()}});
  }
  gateway.Stop();
  LogInfo("stopped");
}

void GatewayApp::RequestStop() {
  MutexLock lock(impl_->mutex);
  impl_->stop = true;
  impl_->changed.NotifyAll();
}

std::string GatewayApp::admin_address() const {
  return impl_->admin == nullptr ? "" : impl_->admin->address();
}

std::string GatewayApp::address() const {
  return impl_->gateway == nullptr ? "" : impl_->gateway->address();
}

}  // namespace renga
