// The routes of the gateway: which path answers what.
//
// Thread rule: on the exchange's loop.

#pragma once

#include <memory>

#include "gateway/gateway_context.h"
#include "gateway/http_exchange.h"

namespace renga {

// Answers one request, whatever it is. Returns who hears of the exchange; none if it is
// answered already.
std::shared_ptr<HttpResponder> RouteRequest(
    GatewayContext& gateway, const std::shared_ptr<HttpExchange>& exchange);

}  // namespace renga
