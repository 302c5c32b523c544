#include "transport/grpc_listener.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "base/log.h"

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
    return true;
  }();
  static_cast<void>(done);
}

// Reflection or not, server by server: gRPC's own library adds it to all of the process.
class ReflectionOption final : public grpc::ServerBuilderOption {
 public:
  explicit ReflectionOption(bool on) : on_(on) {}

  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(
      std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    auto reflection = std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>();
    const std::string name = reflection->name();
    std::erase_if(*plugins, [&name](const auto& other) { return other->name() == name; });
    if (on_) plugins->push_back(std::move(reflection));
  }

 private:
  const bool on_;
};

void SetLimits(const ListenOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
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

StatusOr<GrpcListener> ListenGrpc(const ListenOptions& options) {
  const std::string host = HostOf(options.address);
  if (host.empty()) return InvalidArgument(options.field, "must be host:port");
  InitialiseGrpc();
  GrpcListener listener;
  grpc::ServerBuilder builder;
  SetLimits(options, builder);
  builder.SetOption(std::make_unique<ReflectionOption>(options.reflection));
  builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(),
                           &listener.port);
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || listener.port <= 0) {
    return Status(StatusCode::kUnavailable,
                  "can't listen on " + options.address +
                      ": in use, or not an address of this machine")
        .WithField(options.field);
  }
  listener.address = host + ":" + std::to_string(listener.port);
  return listener;
}

void ShutdownGrpc(grpc::Server& server) {
  server.Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
}

}  // namespace renga
