// What all requests to the gateway share, and what the gateway knows of one of them.
//
// Thread safety: GatewayContext is read-only but for `draining`; its parts may be called
// from any thread. A RequestScope is a plain value.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "gateway/http_exchange.h"
#include "gateway/inference_client.h"
#include "renga/config.h"
#include "renga/status.h"

namespace renga {

struct GatewayContext {
  const GatewaySettings settings;
  const bool require_key = false;  // The server behind wants keys.
  InferenceClient& client;
  // Runs long work apart from the event loops.
  std::function<void(std::function<void()>)> post_work;
  int64_t started_at = 0;  // Unix seconds.
  std::atomic<bool> draining{false};
};

// What belongs to every answer of one request.
struct RequestScope {
  std::string id;           // x-request-id: the client's, or a new one.
  std::string cors_origin;  // Access-Control-Allow-Origin; empty: none.
};

// The id, and the header that is refused if one of those that travel on is malformed:
// each at most once, printable ASCII, at most 4096 bytes (x-request-id 128).
Status ReadScope(const GatewayContext& gateway, const HttpRequest& request,
                 RequestScope& scope);
// Adds the headers that belong to every answer.
void AddScopeHeaders(const RequestScope& scope, HttpResponse& response);

// The call that `exchange` makes of the server: its metadata and its loop.
CallOrigin OriginOf(const RequestScope& scope,
                    const std::shared_ptr<HttpExchange>& exchange);

// So many random characters of [0-9a-zA-Z].
std::string RandomName(size_t length);

int64_t UnixSeconds();

// Why a body of this Content-Type is refused; OK for JSON and for none. Refusing what a
// web page may send without asking (text/plain, forms) keeps foreign pages out.
Status CheckJsonType(const HttpRequest& request);

}  // namespace renga
