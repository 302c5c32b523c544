// GatewayObserver: what the HTTP server sees, as metrics and as the access log.
//
// A line of the log has the method, the path without its query, the status, the time, the
// bytes sent and the request's id; never a body, a header or a key.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <optional>

#include "base/log.h"
#include "gateway/http_server.h"
#include "metrics/gateway_metrics.h"

namespace renga {

class GatewayObserver final : public HttpObserver {
 public:
  // `metrics`: nullptr: counts nothing; else it outlives this. `access_log`: off | debug
  // | info, the level of the lines.
  GatewayObserver(GatewayMetrics* metrics, const std::string& access_log);

  void OnConnections(int delta) override;
  void OnStreams(int delta) override;
  void OnEnd(const HttpAccess& access) override;

 private:
  GatewayMetrics* const metrics_;
  const std::optional<LogLevel> level_;
};

}  // namespace renga
