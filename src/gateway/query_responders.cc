#include "gateway/query_responders.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/http_error.h"
#include "gateway/json_writer.h"
#include "gateway/openai_answer.h"
#include "gateway/openai_request.h"

namespace renga {
namespace {

using Exchange = std::shared_ptr<HttpExchange>;

// A body larger than this is read on the thread for long work.
constexpr size_t kLongBody = 32 << 10;

// Waits for a few calls, and answers once.
class QueryResponder : public HttpResponder,
                       public std::enable_shared_from_this<QueryResponder> {
 public:
  QueryResponder(GatewayContext& gateway, RequestScope scope, Exchange exchange)
      : gateway_(gateway), scope_(std::move(scope)), exchange_(std::move(exchange)) {}

  virtual void Start() = 0;
  void OnStop() override { Fail(Unavailable("the server is shutting down")); }
  void OnClosed() override { CancelCalls(); }

 protected:
  void Keep(std::shared_ptr<ClientCall> call) { calls_.push_back(std::move(call)); }
  CallOrigin Origin() const { return OriginOf(scope_, exchange_); }
  bool done() const { return exchange_->done() || answered_; }

  void Respond(HttpResponse response) {
    if (std::exchange(answered_, true)) return;
    CancelCalls();
    AddScopeHeaders(scope_, response);
    exchange_->Respond(std::move(response));
  }
  void RespondJson(std::string body, int status = 200) {
    HttpResponse response{.status = status, .body = std::move(body)};
    response.Set("Content-Type", "application/json");
    Respond(std::move(response));
  }
  void Fail(const Status& status) { Respond(ErrorResponse(status)); }

  template <class Derived>
  std::shared_ptr<Derived> Self(Derived*) {
    return std::static_pointer_cast<Derived>(shared_from_this());
  }

  GatewayContext& gateway_;
  const RequestScope scope_;
  const Exchange exchange_;

 private:
  void CancelCalls() {
    for (const auto& call : std::exchange(calls_, {})) call->Cancel();
  }

  std::vector<std::shared_ptr<ClientCall>> calls_;
  bool answered_ = false;
};

template <class Query>
std::shared_ptr<HttpResponder> StartQuery(GatewayContext& gateway,
                                          const RequestScope& scope,
                                          const Exchange& exchange) {
  auto query = std::make_shared<Query>(gateway, scope, exchange);
  query->Start();
  return query;
}

bool NamesModel(std::string_view name, const v1::GetModelResponse& model) {
  return name.empty() || name == "default" || name == model.name();
}

Status NoSuchModel(std::string_view name) {
  return NotFound("the model \"" + std::string(name.substr(0, 128)) +
                  "\" does not exist here");
}

// ---- Models --------------------------------------------------------------------------

class ModelsQuery final : public QueryResponder {
 public:
  using QueryResponder::QueryResponder;

  void Start() override {
    Keep(gateway_.client.GetModel(
        Origin(), [self = Self(this)](const Status& status, const TargetInfo&,
                                      v1::GetModelResponse& model) {
          self->OnModel(status, model);
        }));
  }

 private:
  void OnModel(const Status& status, const v1::GetModelResponse& model) {
    if (!status.ok()) return Fail(status);
    constexpr std::string_view kList = "/v1/models";
    std::string_view id = exchange_->request().path;
    id.remove_prefix(std::min(id.size(), kList.size() + 1));
    if (id.empty()) return RespondJson(ModelList(model, gateway_.started_at));
    if (!NamesModel(id, model)) return Fail(NoSuchModel(id));
    RespondJson(ModelEntry(model, gateway_.started_at));
  }
};

// ---- Tokens --------------------------------------------------------------------------

// Reads the body, checks the model that it names, and asks.
template <class Body>
class TokenQuery : public QueryResponder {
 public:
  using QueryResponder::QueryResponder;

  void Start() override {
    const std::string& body = exchange_->request().body;
    if (body.size() <= kLongBody) return OnParsed(Parse(body));
    gateway_.post_work([self = Self(this)] {
      auto parsed =
          std::make_shared<StatusOr<Body>>(self->Parse(self->exchange_->request().body));
      self->exchange_->Post([self, parsed] { self->OnParsed(std::move(*parsed)); });
    });
  }

 protected:
  virtual StatusOr<Body> Parse(const std::string& body) const = 0;
  virtual void Ask(const Body& body, const v1::GetModelResponse& model) = 0;

 private:
  void OnParsed(StatusOr<Body> parsed) {
    if (done()) return;
    if (!parsed.ok()) return Fail(parsed.status());
    Keep(gateway_.client.GetModel(
        Origin(),
        [self = Self(this), body = *std::move(parsed)](
            const Status& status, const TargetInfo&, v1::GetModelResponse& model) {
          if (!status.ok()) return self->Fail(status);
          if (!NamesModel(body.model, model)) return self->Fail(NoSuchModel(body.model));
          self->Ask(body, model);
        }));
  }
};

class TokenizeQuery final : public TokenQuery<TokenizeBody> {
 public:
  using TokenQuery::TokenQuery;

 private:
  StatusOr<TokenizeBody> Parse(const std::string& body) const override {
    return ParseTokenizeRequest(body, gateway_.settings.lenient);
  }
  void Ask(const TokenizeBody& body, const v1::GetModelResponse& model) override {
    const int64_t context = model.context_length();
    Keep(gateway_.client.Tokenize(
        Origin(), body.request,
        [self = Self(this), context](const Status& status, const TargetInfo&,
                                     v1::TokenizeResponse& response) {
          if (!status.ok()) return self->Fail(status);
          JsonWriter json;
          json.BeginObject().Key("tokens").BeginArray();
          for (const int32_t id : response.token_ids()) json.Int(id);
          json.EndArray().Field("count", response.token_ids_size());
          json.Field("max_model_len", context).EndObject();
          self->RespondJson(std::move(json).Take());
        }));
  }
};

class DetokenizeQuery final : public TokenQuery<DetokenizeBody> {
 public:
  using TokenQuery::TokenQuery;

 private:
  StatusOr<DetokenizeBody> Parse(const std::string& body) const override {
    return ParseDetokenizeRequest(body, gateway_.settings.lenient);
  }
  // Its only field is called "tokens" here.
  void FailTokens(const Status& status) {
    const std::string& field = status.field();
    const size_t end = std::min(field.find('['), field.size());
    Fail(field.empty() ? status : Status(status).WithField("tokens" + field.substr(end)));
  }
  void Ask(const DetokenizeBody& body, const v1::GetModelResponse&) override {
    Keep(gateway_.client.Detokenize(
        Origin(), body.request,
        [self = Self(this)](const Status& status, const TargetInfo&,
                            v1::DetokenizeResponse& response) {
          if (!status.ok()) return self->FailTokens(status);
          JsonWriter json;
          json.BeginObject().Field("prompt", response.text()).EndObject();
          self->RespondJson(std::move(json).Take());
        }));
  }
};

// ---- Load and health -----------------------------------------------------------------

class LoadQuery final : public QueryResponder {
 public:
  using QueryResponder::QueryResponder;

  void Start() override {
    open_ = gateway_.client.target_count();
    for (size_t i = 0; i < gateway_.client.target_count(); ++i) {
      Keep(gateway_.client.GetLoad(
          i, Origin(),
          [self = Self(this)](const Status& status, const TargetInfo&,
                              v1::GetLoadResponse& load) {
            self->OnLoad(status, load);
          }));
    }
  }

 private:
  void OnLoad(const Status& status, const v1::GetLoadResponse& load) {
    if (!status.ok()) {
      failure_ = status;
    } else {
      loads_.push_back(load);
    }
    if (--open_ > 0) return;
    if (loads_.empty()) return Fail(failure_);
    Keep(gateway_.client.GetModel(
        Origin(), [self = Self(this)](const Status& model_status, const TargetInfo&,
                                      v1::GetModelResponse& model) {
          // A server that drains says how busy it is, but nothing else any more.
          self->RespondJson(self->Body(model_status.ok() ? &model : nullptr));
        }));
  }

  template <class Get>
  int64_t Sum(Get get) const {
    int64_t sum = 0;
    for (const v1::GetLoadResponse& load : loads_) sum += (load.*get)();
    return sum;
  }

  // `model` may be null.
  std::string Body(const v1::GetModelResponse* model) const {
    using Load = v1::GetLoadResponse;
    bool ready = false;
    double busy = 0.0;
    int64_t first_token_us = loads_[0].predicted_first_token_us();
    for (const Load& load : loads_) {
      ready = ready || load.ready();
      busy += load.busy_share() / static_cast<double>(loads_.size());
      first_token_us = std::min<int64_t>(first_token_us, load.predicted_first_token_us());
    }
    JsonWriter json;
    json.BeginObject();
    json.Field("ready", ready && !gateway_.draining);
    json.Field("servers", gateway_.client.target_count());
    json.Field("servers_answering", loads_.size());
    json.Field("running", Sum(&Load::running)).Field("waiting", Sum(&Load::waiting));
    json.Field("waiting_tokens", Sum(&Load::waiting_tokens));
    json.Field("max_sequences", Sum(&Load::max_sequences));
    json.Field("max_waiting", Sum(&Load::max_waiting));
    json.Field("kv_pages_total", Sum(&Load::kv_pages_total));
    json.Field("kv_pages_free", Sum(&Load::kv_pages_free));
    json.Field("kv_pages_cached", Sum(&Load::kv_pages_cached));
    json.Field("busy_share", busy);
    json.Field("predicted_first_token_ms", static_cast<double>(first_token_us) / 1000.0);
    model == nullptr ? json.NullField("model")
                     : json.Key("model").Raw(ModelEntry(*model, gateway_.started_at));
    json.EndObject();
    return std::move(json).Take();
  }

  size_t open_ = 0;
  Status failure_;
  std::vector<v1::GetLoadResponse> loads_;
};

class HealthQuery final : public QueryResponder {
 public:
  using QueryResponder::QueryResponder;

  void Start() override {
    open_ = gateway_.client.target_count();
    if (gateway_.draining) return Tell(false);
    for (size_t i = 0; i < gateway_.client.target_count(); ++i) {
      Keep(gateway_.client.CheckHealth(
          i, Origin(), [self = Self(this)](bool serving) { self->OnHealth(serving); }));
    }
  }

 private:
  void OnHealth(bool serving) {
    --open_;
    if (serving || open_ == 0) Tell(serving);
  }
  void Tell(bool ready) {
    RespondJson(ready ? R"({"status":"ready"})" : R"({"status":"not ready"})",
                ready ? 200 : 503);
  }

  size_t open_ = 0;
};

}  // namespace

std::shared_ptr<HttpResponder> ModelsRoute(GatewayContext& gateway,
                                           const RequestScope& scope,
                                           const Exchange& exchange) {
  return StartQuery<ModelsQuery>(gateway, scope, exchange);
}

std::shared_ptr<HttpResponder> TokenizeRoute(GatewayContext& gateway,
                                             const RequestScope& scope,
                                             const Exchange& exchange) {
  return StartQuery<TokenizeQuery>(gateway, scope, exchange);
}

std::shared_ptr<HttpResponder> DetokenizeRoute(GatewayContext& gateway,
                                               const RequestScope& scope,
                                               const Exchange& exchange) {
  return StartQuery<DetokenizeQuery>(gateway, scope, exchange);
}

std::shared_ptr<HttpResponder> LoadRoute(GatewayContext& gateway,
                                         const RequestScope& scope,
                                         const Exchange& exchange) {
  return StartQuery<LoadQuery>(gateway, scope, exchange);
}

std::shared_ptr<HttpResponder> HealthRoute(GatewayContext& gateway,
                                           const RequestScope& scope,
                                           const Exchange& exchange) {
  return StartQuery<HealthQuery>(gateway, scope, exchange);
}

}  // namespace renga
