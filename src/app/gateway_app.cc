#include "app/gateway_app.h"

#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "gateway/http_gateway.h"

namespace renga {

struct GatewayApp::Impl {
  Impl(const Config& c, std::vector<std::string> t) : config(c), targets(std::move(t)) {}

  const Config config;
  const std::vector<std::string> targets;
  std::unique_ptr<HttpGateway> gateway;

  Mutex mutex;
  CondVar changed;
  bool stop RENGA_GUARDED_BY(mutex) = false;
};

GatewayApp::GatewayApp(const Config& config, std::vector<std::string> targets)
    : impl_(std::make_unique<Impl>(config, std::move(targets))) {}

GatewayApp::~GatewayApp() = default;

Status GatewayApp::Start() {
  const Config& config = impl_->config;
  if (config.gateway.address.empty()) {
    return InvalidArgument("gateway.address", "is required: where to listen");
  }
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (const std::string& target : impl_->targets) {
    if (target.find(':') == std::string::npos) {
      return InvalidArgument("--target", "must be host:port, not '" + target + "'");
    }
    channels.push_back(MakeTargetChannel(target));
  }
  // Whether keys are wanted is the servers' to say.
  RENGA_ASSIGN_OR_RETURN(
      impl_->gateway,
      HttpGateway::Start(
          config.gateway, channels,
          {.write_timeout = std::chrono::milliseconds(config.grpc.write_timeout_ms)}));
  LogInfo("listening", {{"gateway", std::string_view(impl_->gateway->address())},
                        {"targets", channels.size()}});
  return OkStatus();
}

void GatewayApp::Run() {
  {
    MutexLock lock(impl_->mutex);
    while (!impl_->stop) impl_->changed.Wait(impl_->mutex);
  }
  HttpGateway& gateway = *impl_->gateway;
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

std::string GatewayApp::address() const {
  return impl_->gateway == nullptr ? "" : impl_->gateway->address();
}

}  // namespace renga
