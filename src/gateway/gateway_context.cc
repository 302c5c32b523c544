#include "gateway/gateway_context.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <string_view>
#include <utility>

namespace renga {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
// All together, with what gRPC adds, stay below the 8 KiB that it takes.
constexpr size_t kMaxHeaderBytes = 2048;
// What travels on as gRPC metadata; any other byte there would end the process.
constexpr std::array<std::string_view, 4> kTravelling = {"x-request-id", "x-tenant-id",
                                                         "x-session-id", "authorization"};

Status CheckHeader(const HttpRequest& request, std::string_view name) {
  const std::string* value = request.Header(name);
  if (value == nullptr) return OkStatus();
  if (request.HeaderCount(name) > 1) {
    return InvalidArgument(std::string(name), "is given twice");
  }
  const size_t most = name == "x-request-id" ? kMaxRequestIdBytes : kMaxHeaderBytes;
  if (value->size() > most) {
    return InvalidArgument(std::string(name),
                           "is longer than " + std::to_string(most) + " bytes");
  }
  if (std::any_of(value->begin(), value->end(),
                  [](char c) { return c < 0x20 || c > 0x7E; })) {
    return InvalidArgument(std::string(name), "must be printable ASCII");
  }
  return OkStatus();
}

// Whether `origin` stands in the comma-separated list; "*" is everybody.
bool IsAllowed(std::string_view list, std::string_view origin) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view entry = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    if (entry == "*" || (!entry.empty() && entry == origin)) return true;
  }
  return false;
}

}  // namespace

Status ReadScope(const GatewayContext& gateway, const HttpRequest& request,
                 RequestScope& scope) {
  if (const std::string* origin = request.Header("origin");
      origin != nullptr && IsAllowed(gateway.settings.cors_origins, *origin)) {
    scope.cors_origin = *origin;
  }
  scope.id = "req-" + RandomName(24);
  for (const std::string_view name : kTravelling) {
    if (Status status = CheckHeader(request, name); !status.ok()) return status;
  }
  const std::string* id = request.Header("x-request-id");
  if (id != nullptr && !id->empty()) scope.id = *id;
  return OkStatus();
}

void AddScopeHeaders(const RequestScope& scope, HttpResponse& response) {
  response.Set("X-Request-Id", scope.id);
  if (scope.cors_origin.empty()) return;
  response.Set("Access-Control-Allow-Origin", scope.cors_origin);
  response.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  response.Set("Vary", "Origin");
}

CallOrigin OriginOf(const RequestScope& scope,
                    const std::shared_ptr<HttpExchange>& exchange) {
  CallOrigin origin;
  origin.metadata.emplace_back("x-request-id", scope.id);
  for (const std::string_view name : kTravelling) {
    const std::string* value = exchange->request().Header(name);
    if (value == nullptr || name == "x-request-id") continue;
    origin.metadata.emplace_back(name, *value);
    if (name == "x-session-id") origin.session = *value;
  }
  origin.post = [exchange](std::function<void()> task) {
    exchange->Post(std::move(task));
  };
  return origin;
}

std::string RandomName(size_t length) {
  constexpr std::string_view kCharacters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  std::uniform_int_distribution<size_t> pick(0, kCharacters.size() - 1);
  std::string name;
  while (name.size() < length) name += kCharacters[pick(generator)];
  return name;
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Status CheckJsonType(const HttpRequest& request) {
  const std::string* type = request.Header("content-type");
  if (type == nullptr) return OkStatus();
  std::string_view name = std::string_view(*type).substr(0, type->find(';'));
  while (name.ends_with(' ') || name.ends_with('\t')) name.remove_suffix(1);
  if (EqualsIgnoringCase(name, "application/json")) return OkStatus();
  return InvalidArgument("content-type", "must be application/json");
}

}  // namespace renga
