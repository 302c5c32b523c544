// GrpcServer: the gRPC listener with the Inference service, health and reflection.
//
// It listens before the model is loaded, so that a port in use is found at once and
// probes get an answer: until Serve() every call of Inference is refused UNAVAILABLE, and
// grpc.health.v1 says NOT_SERVING. Life:
//
//   Listen -> Serve(service, metrics) -> SetServing(true) ... -> Drain(deadline) ->
//   Shutdown()
//
// While it drains it still listens: health says NOT_SERVING and new calls are refused
// UNAVAILABLE, so that clients and probes are told, while running calls finish. Shutdown
// then says GOAWAY, closes the listener and ends what is left.
//
// Thread safety: SetServing and active_calls may be called from any thread, the others
// from one thread. The GenerationService must work (its engine run) until Shutdown has
// returned: a call ends only after its sink's OnDone. The metrics live as long.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdint>
#include <memory>
#include <string>

#include "metrics/server_metrics.h"
#include "renga/config.h"
#include "renga/generation_service.h"
#include "renga/status.h"
#include "transport/api_keys.h"

namespace renga {

class GrpcServer {
 public:
  // Binds the address (port 0: any free one) and answers from now on. Fails with field
  // "grpc.address" if the address cannot be had. With `keys` every call of Inference
  // wants one of them, health stays open to all, and there is no reflection.
  static StatusOr<std::unique_ptr<GrpcServer>> Listen(
      const GrpcSettings& settings, std::shared_ptr<const ApiKeys> keys = nullptr);
  ~GrpcServer();  // Shutdown(), if that was not done.

  // A channel into this server without a socket. It must be gone before Shutdown returns.
  std::shared_ptr<grpc::Channel> InProcessChannel(
      const grpc::ChannelArguments& arguments);

  int port() const;                    // The bound port.
  const std::string& address() const;  // "127.0.0.1:50051", with the bound port.

  // From now on calls reach `service`. Health does not change.
  void Serve(GenerationService& service, ServerMetrics& metrics);

  // What grpc.health.v1 says for "" and "renga.v1.Inference". Repeating a value costs
  // nothing; after Drain it stays NOT_SERVING.
  void SetServing(bool serving);

  // Calls of Inference that have not ended.
  int64_t active_calls() const;

  // Not serving, new calls refused; waits until all running calls have ended. False if
  // some still run at `deadline`.
  bool Drain(TimePoint deadline);

  // Closes the listener, ends every call that is left (with CANCELLED, after a second of
  // grace) and waits for them. After Drain returned false, end the requests in the engine
  // first: their clients then get its status instead of a reset.
  void Shutdown();

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace renga
