// HttpGateway: the OpenAI-compatible HTTP API and the chat page, in front of one or
// several servers of the native API.
//
// It is a gRPC client: in one process with the server over an in-process channel, or
// apart. Life:
//
//   Start(settings, targets, options) -> ... -> StartDrain() -> WaitIdle(deadline) ->
//   Stop()
//
// While it drains it still listens: running requests finish, new ones get 503, /health
// says 503, and connections close after their answer.
//
// Thread safety: every method may be called from any thread, Stop and the destructor by
// one. The servers behind the targets must work until Stop has returned.

#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gateway/inference_client.h"
#include "renga/config.h"
#include "renga/status.h"

namespace renga {

class GatewayMetrics;

struct GatewayOptions {
  // The servers want keys: requests without one are refused before anything is read.
  bool require_key = false;
  // A client that takes no byte for so long is cut.
  Duration write_timeout = std::chrono::seconds(10);
  GatewayMetrics* metrics = nullptr;  // Outlives the gateway; nullptr: none.
};

class HttpGateway {
 public:
  // Listens and answers from now on; the servers may come later (until then: 503).
  // `targets` are not empty, made with TargetChannelArguments(). Fails with field
  // "gateway.address" if the address cannot be had.
  static StatusOr<std::unique_ptr<HttpGateway>> Start(
      const GatewaySettings& settings, const std::vector<GatewayTarget>& targets,
      const GatewayOptions& options);
  ~HttpGateway();  // Stop(), if that was not done.

  // The address really bound: "127.0.0.1:8080".
  const std::string& address() const;
  int64_t active_requests() const;

  void StartDrain();
  // False if requests are under way at `deadline`.
  bool WaitIdle(TimePoint deadline);
  // Ends what is left (streams get an error event), closes everything and waits for all
  // calls to be over.
  void Stop();

 private:
  struct Impl;
  explicit HttpGateway(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace renga
