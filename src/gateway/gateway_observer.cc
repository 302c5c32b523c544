#include "gateway/gateway_observer.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "gateway/gateway_routes.h"

namespace renga {
namespace {

constexpr size_t kMaxPathBytes = 200;  // In a line of the log.

std::optional<LogLevel> LevelOf(const std::string& access_log) {
  if (access_log == "info") return LogLevel::kInfo;
  if (access_log == "debug") return LogLevel::kDebug;
  return std::nullopt;
}

// A path is a client's text: nothing in it may look like another field of the line.
std::string PlainPath(std::string_view path) {
  std::string plain(path.substr(0, kMaxPathBytes));
  std::replace_if(
      plain.begin(), plain.end(), [](char c) { return c <= ' ' || c > '~'; }, '?');
  return plain;
}

}  // namespace

GatewayObserver::GatewayObserver(GatewayMetrics* metrics, const std::string& access_log)
    : metrics_(metrics), level_(LevelOf(access_log)) {}

void GatewayObserver::OnConnections(int delta) {
  if (metrics_ != nullptr) metrics_->AddConnections(delta);
}

void GatewayObserver::OnStreams(int delta) {
  if (metrics_ != nullptr) metrics_->AddStreams(delta);
}

void GatewayObserver::OnEnd(const HttpAccess& access) {
  static const HttpRequest none;
  const HttpRequest& request = access.request == nullptr ? none : *access.request;
  if (metrics_ != nullptr) {
    metrics_->CountRequest(RouteName(request.path), access.status, access.elapsed);
    metrics_->CountBytes(access.sent_bytes, static_cast<int64_t>(request.body.size()));
  }
  if (!level_) return;
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(access.elapsed).count();
  Log(*level_, "http",
      {{"method", std::string_view(request.method)},
       {"path", PlainPath(request.path)},
       {"status", access.status},
       {"ms", ms},
       {"bytes", access.sent_bytes},
       {"complete", access.complete ? "yes" : "no"},
       {"id", std::string_view(access.request_id)}});
}

}  // namespace renga
