#include "transport/grpc_service.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "transport/caller.h"
#include "transport/grpc_unary_answer.h"
#include "transport/proto_conversion.h"
#include "transport/status_mapping.h"
#include "transport/wire.h"

namespace renga {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
constexpr int kMaxCancelIds = 1024;
constexpr int64_t kMinLoadIntervalMs = 100;
constexpr int64_t kMaxLoadIntervalMs = 60'000;
constexpr size_t kMaxWaitingTasks = 256;
// The least that RetryInfo says: so many tasks take no longer, unless all are very long.
constexpr std::chrono::milliseconds kTasksRetry{100};

// A streamed call that is refused before it starts.
class RefusedStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const Status& status) { Finish(ToGrpcStatus(status)); }

 private:
  void OnDone() override { delete this; }
};

grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext& context,
                                 const Status& status) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// The call's deadline on the monotonic clock; none if it is further away than anybody
// waits (a month).
std::optional<TimePoint> DeadlineOf(const grpc::CallbackServerContext& context,
                                    TimePoint now) {
  const gpr_timespec left =
      gpr_time_sub(context.raw_deadline(), gpr_now(context.raw_deadline().clock_type));
  constexpr int64_t kMonthSeconds = 31 * 86400;
  if (left.tv_sec > kMonthSeconds) return std::nullopt;
  if (left.tv_sec < 0) return now;
  return now + std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
}

// The client's x-request-id; "" without one.
StatusOr<std::string> ClientId(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kRequestIdHeader);
  if (found == metadata.end()) return std::string();
  const std::string_view value(found->second.data(), found->second.size());
  if (value.size() > kMaxRequestIdBytes) {
    return InvalidArgument(kRequestIdHeader, "must have at most 128 bytes");
  }
  return std::string(value);
}

std::optional<TimePoint> Earlier(std::optional<TimePoint> a, std::optional<TimePoint> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

InferenceService::InferenceService(const GrpcSettings& settings,
                                   std::shared_ptr<const ApiKeys> keys)
    : max_backlog_chunks_(settings.max_backlog_chunks),
      keys_(std::move(keys)),
      watch_(std::chrono::milliseconds(settings.write_timeout_ms)),
      tasks_(kMaxWaitingTasks) {
  CaptureProtobufErrors();
}

void InferenceService::Open(GenerationService& service, ServerMetrics& metrics) {
  model_ = service.GetModel().name;
  metrics_ = &metrics;
  gate_.Open(service);
}

// ---- Generate and GenerateUnary -----------------------------------------------------

StatusOr<GenerateRequest> InferenceService::ReadRequest(
    grpc::CallbackServerContext& context, const grpc::ByteBuffer& bytes,
    const std::string& tenant, RequestId id) const {
  const TimePoint now = std::chrono::steady_clock::now();
  v1::GenerateRequest message;
  RENGA_RETURN_IF_ERROR(Decode(bytes, message));
  RENGA_ASSIGN_OR_RETURN(GenerateRequest request, ToGenerateRequest(message, now));
  request.id = id;
  request.deadline = Earlier(request.deadline, DeadlineOf(context, now));
  request.tenant = tenant;
  return request;
}

StatusOr<InferenceService::Admitted> InferenceService::Admit(
    grpc::CallbackServerContext& context, const grpc::ByteBuffer& bytes) {
  RENGA_ASSIGN_OR_RETURN(std::string tenant, IdentifyCaller(context));
  RENGA_ASSIGN_OR_RETURN(std::string client_id, ClientId(context));
  StatusOr<GenerationService*> entered = gate_.Enter();
  if (!entered.ok()) {
    CountOutside(RejectReason::kDraining);
    return entered.status();
  }
  GenerationService* const service = *entered;
  const RequestId id = service->NewRequestId();
  StatusOr<GenerateRequest> request = ReadRequest(context, bytes, tenant, id);
  if (!request.ok()) {
    // Without any bytes the call has ended before its message came.
    if (bytes.Valid()) CountRefusal(RejectReason::kBadRequest);
    context.AddTrailingMetadata(kRequestIdHeader, AnswerId(id, client_id));
    gate_.Leave();
    return request.status();
  }
  const bool many_choices = request->n > 1;
  return Admitted{.request = *std::move(request),
                  .call = {.service = *service,
                           .metrics = *metrics_,
                           .gate = gate_,
                           .watch = watch_,
                           .registry = registry_,
                           .grpc = context,
                           .model = model_,
                           .id = id,
                           .tenant = std::move(tenant),
                           .client_id = std::move(client_id),
                           .many_choices = many_choices}};
}

void InferenceService::CountRefusal(RejectReason reason) {
  metrics_->CountRequest(RequestOutcome::kRejected, Duration::zero());
  metrics_->CountRejection(reason);
}

void InferenceService::CountOutside(RejectReason reason) {
  if (!gate_.EnterEvenIfClosed().ok()) return;  // No metrics before the model is loaded.
  CountRefusal(reason);
  gate_.Leave();
}

StatusOr<std::string> InferenceService::IdentifyCaller(
    const grpc::CallbackServerContext& context) {
  StatusOr<std::string> tenant = Identify(context, keys_.get());
  if (tenant.status().code() == StatusCode::kUnauthenticated) {
    CountOutside(RejectReason::kUnauthenticated);
  }
  return tenant;
}

void InferenceService::Start(GenerationService& service, GenerateRequest request,
                             TokenSink& sink) {
  const RequestId id = request.id;
  service.Generate(std::move(request), sink);
  // A Cancel that came before the service knew the id was lost there.
  if (registry_.WasCancelled(id)) service.Cancel(id);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
  StatusOr<Admitted> admitted = Admit(*context, *bytes);
  if (!admitted.ok()) return new RefusedStream(admitted.status());
  GenerationService& service = admitted->call.service;
  auto* stream = new GrpcTokenStream(std::move(admitted->call), max_backlog_chunks_);
  Start(service, std::move(admitted->request), *stream);
  return stream;
}

grpc::ServerUnaryReactor* InferenceService::GenerateUnary(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
    grpc::ByteBuffer* response) {
  StatusOr<Admitted> admitted = Admit(*context, *bytes);
  if (!admitted.ok()) return Refuse(*context, admitted.status());
  GenerationService& service = admitted->call.service;
  auto* answer = new GrpcUnaryAnswer(std::move(admitted->call), *response);
  Start(service, std::move(admitted->request), *answer);
  return answer;
}

// ---- GetLoad, WatchLoad and Cancel --------------------------------------------------

template <class Compute>
grpc::ServerUnaryReactor* InferenceService::AnswerNow(
    grpc::CallbackServerContext* context, grpc::ByteBuffer* response, Compute compute) {
  const StatusOr<std::string> tenant = IdentifyCaller(*context);
  if (!tenant.ok()) return Refuse(*context, tenant.status());
  StatusOr<GenerationService*> service = gate_.EnterEvenIfClosed();
  if (!service.ok()) return Refuse(*context, service.status());
  auto message = compute(**service, *tenant);
  if (message.ok()) *response = Encode(*message);
  gate_.Leave();
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(message.status()));
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::GetLoad(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* bytes,
                                                    grpc::ByteBuffer* response) {
  return AnswerNow(context, response,
                   [bytes](GenerationService& service,
                           const std::string&) -> StatusOr<v1::GetLoadResponse> {
                     v1::GetLoadRequest message;
                     RENGA_RETURN_IF_ERROR(Decode(*bytes, message));
                     v1::GetLoadResponse response_message;
                     ToProto(service.GetLoad(), response_message);
                     return response_message;
                   });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::WatchLoad(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
  const StatusOr<std::string> tenant = IdentifyCaller(*context);
  if (!tenant.ok()) return new RefusedStream(tenant.status());
  v1::WatchLoadRequest message;
  if (Status status = Decode(*bytes, message); !status.ok()) {
    return new RefusedStream(status);
  }
  const int64_t interval = message.has_interval_ms() ? message.interval_ms() : 1000;
  if (interval < kMinLoadIntervalMs || interval > kMaxLoadIntervalMs) {
    return new RefusedStream(InvalidArgument("interval_ms", "must be from 100 to 60000"));
  }
  StatusOr<GenerationService*> service = gate_.Enter();
  if (!service.ok()) return new RefusedStream(service.status());
  return loads_.Start(*context, **service, std::chrono::milliseconds(interval));
}

grpc::ServerUnaryReactor* InferenceService::Cancel(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* bytes,
                                                   grpc::ByteBuffer* response) {
  return AnswerNow(
      context, response,
      [this, bytes](GenerationService& service,
                    const std::string& tenant) -> StatusOr<v1::CancelResponse> {
        v1::CancelRequest message;
        RENGA_RETURN_IF_ERROR(Decode(*bytes, message));
        const auto& ids = message.request_ids();
        if (ids.empty() || ids.size() > kMaxCancelIds) {
          return InvalidArgument("request_ids", "must have 1 to 1024 entries");
        }
        const std::vector<std::string> names(ids.begin(), ids.end());
        const std::vector<RequestId> found = registry_.Cancel(tenant, names);
        for (const RequestId id : found) service.Cancel(id);
        v1::CancelResponse response_message;
        response_message.set_cancelled(static_cast<int64_t>(found.size()));
        return response_message;
      });
}

// ---- Tokenize, Detokenize and GetModel ----------------------------------------------

template <class Compute>
grpc::ServerUnaryReactor* InferenceService::AnswerLater(
    grpc::CallbackServerContext* context, grpc::ByteBuffer* response, Compute compute) {
  const StatusOr<std::string> tenant = IdentifyCaller(*context);
  if (!tenant.ok()) return Refuse(*context, tenant.status());
  StatusOr<GenerationService*> service = gate_.Enter();
  if (!service.ok()) return Refuse(*context, service.status());
  // gRPC keeps context, reactor and response until Finish.
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool posted =
      tasks_.TryPost([this, context, reactor, response, service = *service,
                      compute = std::move(compute)]() mutable {
        Status status;
        if (context->IsCancelled()) {
          status = Cancelled("cancelled by the client");
        } else {
          auto message = compute(*service);
          status = message.status();
          if (message.ok()) *response = Encode(*message);
        }
        gate_.Leave();
        reactor->Finish(ToGrpcStatus(status));
      });
  if (!posted) {
    gate_.Leave();
    reactor->Finish(ToGrpcStatus(
        ResourceExhausted("too many calls wait").WithRetryAfter(kTasksRetry)));
  }
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* bytes,
                                                     grpc::ByteBuffer* response) {
  return AnswerLater(
      context, response,
      [bytes](GenerationService& service) -> StatusOr<v1::TokenizeResponse> {
        v1::TokenizeRequest message;
        if (Status status = Decode(*bytes, message); !status.ok()) return status;
        StatusOr<PromptInput> prompt = ToPrompt(message);
        if (!prompt.ok()) return prompt.status();
        StatusOr<std::vector<TokenId>> ids = service.Tokenize(*prompt);
        if (!ids.ok()) return ids.status();
        v1::TokenizeResponse response_message;
        response_message.mutable_token_ids()->Add(ids->begin(), ids->end());
        return response_message;
      });
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
    grpc::ByteBuffer* response) {
  return AnswerLater(
      context, response,
      [bytes](GenerationService& service) -> StatusOr<v1::DetokenizeResponse> {
        v1::DetokenizeRequest message;
        if (Status status = Decode(*bytes, message); !status.ok()) return status;
        const auto& ids = message.token_ids();
        StatusOr<std::string> text =
            service.Detokenize(std::vector<TokenId>(ids.begin(), ids.end()));
        if (!text.ok()) return text.status();
        v1::DetokenizeResponse response_message;
        response_message.set_text(*std::move(text));
        return response_message;
      });
}

grpc::ServerUnaryReactor* InferenceService::GetModel(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* bytes,
                                                     grpc::ByteBuffer* response) {
  return AnswerLater(
      context, response,
      [bytes](GenerationService& service) -> StatusOr<v1::GetModelResponse> {
        v1::GetModelRequest message;
        if (Status status = Decode(*bytes, message); !status.ok()) {
          return status;
        }
        v1::GetModelResponse response_message;
        ToProto(service.GetModel(), response_message);
        return response_message;
      });
}

}  // namespace renga
