// The routes that ask the server one question and answer at once: models, tokens, load,
// health.
//
// Thread rule: on the exchange's loop.

#pragma once

#include <memory>

#include "gateway/gateway_context.h"
#include "gateway/http_exchange.h"

namespace renga {

// GET /v1/models and /v1/models/ID.
std::shared_ptr<HttpResponder> ModelsRoute(GatewayContext& gateway,
                                           const RequestScope& scope,
                                           const std::shared_ptr<HttpExchange>& exchange);
// POST /tokenize: {"tokens": [...], "count": N, "max_model_len": N}.
std::shared_ptr<HttpResponder> TokenizeRoute(
    GatewayContext& gateway, const RequestScope& scope,
    const std::shared_ptr<HttpExchange>& exchange);
// POST /detokenize: {"prompt": "..."}.
std::shared_ptr<HttpResponder> DetokenizeRoute(
    GatewayContext& gateway, const RequestScope& scope,
    const std::shared_ptr<HttpExchange>& exchange);
// GET /api/load: how busy the servers are, added up, and the model.
std::shared_ptr<HttpResponder> LoadRoute(GatewayContext& gateway,
                                         const RequestScope& scope,
                                         const std::shared_ptr<HttpExchange>& exchange);
// GET /health: 200 if a request sent now would be served, else 503.
std::shared_ptr<HttpResponder> HealthRoute(GatewayContext& gateway,
                                           const RequestScope& scope,
                                           const std::shared_ptr<HttpExchange>& exchange);

}  // namespace renga
