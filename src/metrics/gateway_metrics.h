// GatewayMetrics: the metrics of the HTTP gateway, with a registry of their own: it may
// run apart from a server.
//
// Labels: `route`, one of a few patterns ("/v1/models/*"), never a path that a client has
// made up; `code`, the HTTP status.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "renga/types.h"

namespace renga {

class GatewayMetrics {
 public:
  GatewayMetrics();
  ~GatewayMetrics();

  // Prometheus text exposition of everything.
  std::string Serialize() const;

  // renga_gateway_requests_total, renga_gateway_request_duration_seconds: a request was
  // answered, or its client has gone. `code`: the status that was sent; 0: none was.
  void CountRequest(std::string_view route, int code, Duration elapsed);
  // renga_gateway_connections, renga_gateway_streams: open now.
  void AddConnections(int delta);
  void AddStreams(int delta);
  // renga_gateway_sent_bytes_total, renga_gateway_received_bytes_total (of bodies).
  void CountBytes(int64_t sent, int64_t received);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace renga
