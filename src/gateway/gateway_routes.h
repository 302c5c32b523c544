// The routes of the gateway: which path answers what.
//
// Thread rule: on the exchange's loop.

#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "gateway/gateway_context.h"
#include "gateway/http_exchange.h"

namespace renga {

// Answers one request, whatever it is. Returns who hears of the exchange; none if it is
// answered already.
std::shared_ptr<HttpResponder> RouteRequest(
    GatewayContext& gateway, const std::shared_ptr<HttpExchange>& exchange);

// Which of the routes a path belongs to: its pattern ("/v1/models/*"), "page" or "other".
std::string_view RouteName(std::string_view path);

// Method and pattern of every route but the page's files; and whether it answers without
// a key where keys are on.
struct RouteInfo {
  std::string_view method;
  std::string_view path;
  bool open = false;
};
std::vector<RouteInfo> Routes();

}  // namespace renga
