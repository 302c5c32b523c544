#include "gateway/http_gateway.h"

#include <utility>

#include "gateway/gateway_context.h"
#include "gateway/gateway_observer.h"
#include "gateway/gateway_routes.h"
#include "gateway/http_error.h"
#include "gateway/http_server.h"

namespace renga {
namespace {

// What clients get to read their last error, once everything is ended.
constexpr std::chrono::seconds kStopGrace{1};

HttpServerOptions ServerOptions(const GatewaySettings& settings,
                                const GatewayOptions& options,
                                GatewayObserver& observer) {
  return {.address = settings.address,
          .address_field = "gateway.address",
          .max_body_bytes = settings.max_body_bytes,
          .max_connections = settings.max_connections,
          .idle_timeout = std::chrono::milliseconds(settings.idle_timeout_ms),
          .read_timeout = std::chrono::milliseconds(settings.read_timeout_ms),
          .write_timeout = options.write_timeout,
          .quiet_interval = std::chrono::milliseconds(settings.keep_alive_ms),
          .refusal = HttpErrorResponse,
          .observer = &observer};
}

}  // namespace

struct HttpGateway::Impl {
  Impl(const GatewaySettings& settings, const std::vector<GatewayTarget>& targets,
       const GatewayOptions& options)
      : client(targets),
        observer(options.metrics, settings.access_log),
        context{
            .settings = settings,
            .require_key = options.require_key,
            .client = client,
            .post_work =
                [this](std::function<void()> work) { server->PostWork(std::move(work)); },
            .started_at = UnixSeconds()} {}

  InferenceClient client;
  GatewayObserver observer;
  GatewayContext context;
  std::unique_ptr<HttpServer> server;  // Last: its requests refer to the others.
  bool stopped = false;
};

StatusOr<std::unique_ptr<HttpGateway>> HttpGateway::Start(
    const GatewaySettings& settings, const std::vector<GatewayTarget>& targets,
    const GatewayOptions& options) {
  auto impl = std::make_unique<Impl>(settings, targets, options);
  StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Start(
      ServerOptions(settings, options, impl->observer),
      [impl = impl.get()](const std::shared_ptr<HttpExchange>& exchange) {
        return RouteRequest(impl->context, exchange);
      });
  if (!server.ok()) return server.status();
  impl->server = *std::move(server);
  return std::unique_ptr<HttpGateway>(new HttpGateway(std::move(impl)));
}

HttpGateway::HttpGateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpGateway::~HttpGateway() { Stop(); }

const std::string& HttpGateway::address() const { return impl_->server->address(); }

int64_t HttpGateway::active_requests() const { return impl_->server->exchanges(); }

void HttpGateway::StartDrain() {
  impl_->context.draining = true;
  impl_->server->StartDrain();
}

bool HttpGateway::WaitIdle(TimePoint deadline) {
  return impl_->server->WaitIdle(deadline);
}

void HttpGateway::Stop() {
  if (std::exchange(impl_->stopped, true)) return;
  StartDrain();
  impl_->server->StopExchanges();
  impl_->server->WaitIdle(std::chrono::steady_clock::now() + kStopGrace);
  impl_->server->CloseConnections();
  impl_->client.calls().WaitUntilNone();
  impl_->server->Close();
}

}  // namespace renga
