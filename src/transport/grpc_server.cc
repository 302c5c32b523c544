#include "transport/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "transport/grpc_service.h"
#include "transport/health_service.h"

namespace renga {
namespace {

constexpr std::chrono::seconds kShutdownGrace{1};

// gRPC's own errors go to our log; at debug level, since any client can cause them.
void GrpcLog(gpr_log_func_args* line) {
  if (line->severity != GPR_LOG_SEVERITY_ERROR) return;
  Log(LogLevel::kDebug, "grpc", {{"message", line->message}});
}

// Once in a process, before the first server.
void InitialiseGrpc() {
  static const bool done = [] {
    gpr_set_log_function(&GrpcLog);
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  static_cast<void>(done);
}

void SetLimits(const GrpcSettings& settings, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(settings.max_message_bytes);
  builder.SetMaxSendMessageSize(-1);  // Answers are bounded by the context.
  // A second server on the same port must fail, not share it.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // One connection can't hold more calls open than the queue and the engine could take;
  // beyond it the client waits on its side.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1024);
  // Pings: proxies send them on idle connections and are not cut for it; ours find a
  // client that vanished without a word.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             1'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  // A few compressed bytes can become gigabytes; texts of this size gain nothing.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  // Reflection is the one service with a thread per call.
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
  grpc::ResourceQuota quota("renga");
  quota.SetMaxThreads(16);
  builder.SetResourceQuota(quota);
}

// The host of "host:port" or "[::1]:port"; empty if the address is not of that form.
// (gRPC takes more: without a port it would listen on 443, and on 34463 for 99999.)
std::string HostOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return "";
  const std::string port = address.substr(colon + 1);
  const bool digits = port.find_first_not_of("0123456789") == std::string::npos;
  if (port.empty() || port.size() > 5 || !digits || std::stoi(port) > 65535) return "";
  return address.substr(0, colon);
}

}  // namespace

struct GrpcServer::Impl {
  explicit Impl(const GrpcSettings& settings) : inference(settings) {}

  InferenceService inference;
  HealthService health;
  std::unique_ptr<grpc::Server> server;
  std::atomic<bool> draining{false};
  int port = 0;
  std::string address;
};

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GrpcServer::~GrpcServer() { Shutdown(); }

StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Listen(const GrpcSettings& settings) {
  const std::string host = HostOf(settings.address);
  if (host.empty()) return InvalidArgument("grpc.address", "must be host:port");
  InitialiseGrpc();
  auto impl = std::make_unique<Impl>(settings);
  grpc::ServerBuilder builder;
  SetLimits(settings, builder);
  builder.AddListeningPort(settings.address, grpc::InsecureServerCredentials(),
                           &impl->port);
  builder.RegisterService(&impl->inference);
  builder.RegisterService(&impl->health);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || impl->port <= 0) {
    return Status(StatusCode::kUnavailable,
                  "can't listen on " + settings.address +
                      ": in use, or not an address of this machine")
        .WithField("grpc.address");
  }
  impl->address = host + ":" + std::to_string(impl->port);
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

int GrpcServer::port() const { return impl_->port; }

const std::string& GrpcServer::address() const { return impl_->address; }

void GrpcServer::Serve(GenerationService& service) { impl_->inference.Open(service); }

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
  if (impl_->server == nullptr) return;
  Drain(std::chrono::steady_clock::now());
  impl_->health.EndWatches();
  impl_->server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  impl_->server.reset();
}

}  // namespace renga
