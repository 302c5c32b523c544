#include "gateway/gateway_routes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "gateway/completion_responder.h"
#include "gateway/http_error.h"
#include "gateway/page_files.h"
#include "gateway/query_responders.h"

namespace renga {
namespace {

using Exchange = std::shared_ptr<HttpExchange>;
using Responder = std::shared_ptr<HttpResponder>;

void Answer(const RequestScope& scope, const Exchange& exchange, HttpResponse response) {
  AddScopeHeaders(scope, response);
  exchange->Respond(std::move(response));
}

Responder Completions(GatewayContext& gateway, const RequestScope& scope,
                      const Exchange& exchange, bool chat) {
  auto responder = std::make_shared<CompletionResponder>(gateway, scope, exchange, chat);
  responder->Start();
  return responder;
}

Responder ChatRoute(GatewayContext& gateway, const RequestScope& scope,
                    const Exchange& exchange) {
  return Completions(gateway, scope, exchange, true);
}

Responder TextRoute(GatewayContext& gateway, const RequestScope& scope,
                    const Exchange& exchange) {
  return Completions(gateway, scope, exchange, false);
}

// A part of OpenAI's API that is not here.
Responder ResponsesRoute(GatewayContext&, const RequestScope& scope,
                         const Exchange& exchange) {
  Answer(scope, exchange,
         HttpErrorResponse(404,
                           "/v1/responses is not supported by this server: use "
                           "/v1/chat/completions"));
  return nullptr;
}

struct Route {
  std::string_view method;
  std::string_view path;
  Responder (*answer)(GatewayContext&, const RequestScope&, const Exchange&);
  bool open = false;  // Needs no key.
  bool while_draining = false;
};

constexpr std::array<Route, 9> kRoutes = {{
    {"POST", "/v1/chat/completions", ChatRoute},
    {"POST", "/v1/completions", TextRoute},
    {"GET", "/v1/models", ModelsRoute},
    {"GET", "/v1/models/*", ModelsRoute},
    {"POST", "/v1/responses", ResponsesRoute},
    {"POST", "/tokenize", TokenizeRoute},
    {"POST", "/detokenize", DetokenizeRoute},
    {"GET", "/api/load", LoadRoute, false, true},
    {"GET", "/health", HealthRoute, true, true},
}};

bool Matches(const Route& route, std::string_view path) {
  if (!route.path.ends_with('*')) return route.path == path;
  const std::string_view stem = route.path.substr(0, route.path.size() - 1);
  return path.starts_with(stem) && path.size() > stem.size();
}

// HEAD is GET without the body.
bool Accepts(std::string_view route_method, std::string_view method) {
  return method == route_method || (route_method == "GET" && method == "HEAD");
}

// What a browser asks before a request of another origin.
void AnswerPreflight(const RequestScope& scope, const Exchange& exchange) {
  HttpResponse response{.status = 204};
  response.Set("Access-Control-Allow-Methods", "GET, POST");
  response.Set("Access-Control-Allow-Headers",
               "Authorization, Content-Type, X-Request-Id, X-Session-Id, X-Tenant-Id, "
               "X-Deadline-Ms");
  response.Set("Access-Control-Max-Age", "600");
  Answer(scope, exchange, std::move(response));
}

void AnswerPage(const RequestScope& scope, const Exchange& exchange,
                const PageFile& file) {
  HttpResponse response{.body = std::string(file.bytes)};
  response.Set("Content-Type", std::string(file.type));
  response.Set("Cache-Control", "no-cache");
  response.Set("Content-Security-Policy",
               "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
               "'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
               "frame-ancestors 'none'");
  response.Set("X-Content-Type-Options", "nosniff");
  response.Set("Referrer-Policy", "no-referrer");
  Answer(scope, exchange, std::move(response));
}

void AnswerWrongMethod(const RequestScope& scope, const Exchange& exchange,
                       const std::string& allowed) {
  HttpResponse response = HttpErrorResponse(
      405, exchange->request().method + " is not for this path: use " + allowed);
  response.Set("Allow", allowed == "GET" ? "GET, HEAD" : allowed);
  Answer(scope, exchange, std::move(response));
}

// A known path by the right method.
Responder Dispatch(GatewayContext& gateway, const RequestScope& scope,
                   const Exchange& exchange, const Route& route) {
  const HttpRequest& request = exchange->request();
  if (gateway.draining && !route.while_draining) {
    Answer(scope, exchange, ErrorResponse(Unavailable("the server is shutting down")));
    return nullptr;
  }
  if (route.method == "POST") {
    if (Status status = CheckJsonType(request); !status.ok()) {
      Answer(scope, exchange,
             HttpErrorResponse(415, "content-type: " + status.message()));
      return nullptr;
    }
  }
  return route.answer(gateway, scope, exchange);
}

const Route* FindRoute(std::string_view path) {
  const auto found = std::find_if(kRoutes.begin(), kRoutes.end(),
                                  [&](const Route& r) { return Matches(r, path); });
  return found == kRoutes.end() ? nullptr : &*found;
}

bool LacksKey(const GatewayContext& gateway, const HttpRequest& request) {
  return gateway.require_key && request.Header("authorization") == nullptr;
}

}  // namespace

Responder RouteRequest(GatewayContext& gateway, const Exchange& exchange) {
  const HttpRequest& request = exchange->request();
  RequestScope scope;
  if (Status status = ReadScope(gateway, request, scope); !status.ok()) {
    Answer(scope, exchange, ErrorResponse(status));
    return nullptr;
  }
  const bool preflight = request.method == "OPTIONS" && !scope.cors_origin.empty() &&
                         request.Header("access-control-request-method") != nullptr;
  if (preflight) {
    AnswerPreflight(scope, exchange);
    return nullptr;
  }
  if (const PageFile* file = FindPageFile(request.path)) {
    if (Accepts("GET", request.method)) {
      AnswerPage(scope, exchange, *file);
    } else {
      AnswerWrongMethod(scope, exchange, "GET");
    }
    return nullptr;
  }
  const Route* const found = FindRoute(request.path);
  // Before anything else is told of a path that needs a key.
  if ((found == nullptr || !found->open) && LacksKey(gateway, request)) {
    const Status status(StatusCode::kUnauthenticated,
                        "a key is required: \"Authorization: Bearer KEY\"");
    Answer(scope, exchange, ErrorResponse(status));
    return nullptr;
  }
  if (found == nullptr) {
    Answer(scope, exchange, HttpErrorResponse(404, "there is no " + request.path));
    return nullptr;
  }
  if (!Accepts(found->method, request.method)) {
    AnswerWrongMethod(scope, exchange, std::string(found->method));
    return nullptr;
  }
  return Dispatch(gateway, scope, exchange, *found);
}

std::string_view RouteName(std::string_view path) {
  if (const Route* route = FindRoute(path)) return route->path;
  return FindPageFile(path) != nullptr ? "page" : "other";
}

std::vector<RouteInfo> Routes() {
  std::vector<RouteInfo> routes;
  routes.reserve(std::size(kRoutes));
  for (const Route& route : kRoutes) {
    routes.push_back({.method = route.method, .path = route.path, .open = route.open});
  }
  return routes;
}

}  // namespace renga
