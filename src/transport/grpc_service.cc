#include "transport/grpc_service.h"

#include <grpc/support/time.h>

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "transport/grpc_unary_answer.h"
#include "transport/proto_conversion.h"
#include "transport/status_mapping.h"
#include "transport/wire.h"

namespace renga {
namespace {

constexpr char kRequestIdHeader[] = "x-request-id";
constexpr size_t kMaxRequestIdBytes = 128;
constexpr size_t kMaxWaitingTasks = 256;

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

// Sends the client's x-request-id back, or `id`.
Status EchoRequestId(grpc::CallbackServerContext& context, RequestId id) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kRequestIdHeader);
  if (found == metadata.end()) {
    context.AddInitialMetadata(kRequestIdHeader,
                               std::to_string(static_cast<uint64_t>(id)));
    return OkStatus();
  }
  const std::string_view value(found->second.data(), found->second.size());
  if (value.size() > kMaxRequestIdBytes) {
    return InvalidArgument(kRequestIdHeader, "must have at most 128 bytes");
  }
  context.AddInitialMetadata(kRequestIdHeader, std::string(value));
  return OkStatus();
}

}  // namespace

InferenceService::InferenceService(const GrpcSettings& settings)
    : max_backlog_chunks_(settings.max_backlog_chunks),
      watch_(std::chrono::milliseconds(settings.write_timeout_ms)),
      tasks_(kMaxWaitingTasks) {
  CaptureProtobufErrors();
}

void InferenceService::Open(GenerationService& service) {
  model_ = service.GetModel().name;
  gate_.Open(service);
}

StatusOr<GenerateRequest> InferenceService::ReadRequest(
    grpc::CallbackServerContext& context, const grpc::ByteBuffer& bytes,
    GenerationService& service) {
  const TimePoint now = std::chrono::steady_clock::now();
  const RequestId id = service.NewRequestId();
  if (Status status = EchoRequestId(context, id); !status.ok()) return status;
  v1::GenerateRequest message;
  if (Status status = Decode(bytes, message); !status.ok()) return status;
  StatusOr<GenerateRequest> request = ToGenerateRequest(message);
  if (!request.ok()) return request;
  request->id = id;
  request->arrival = now;
  request->deadline = DeadlineOf(context, now);
  return request;
}

CallContext InferenceService::MakeCall(grpc::CallbackServerContext& context,
                                       GenerationService& service, RequestId id) {
  return {.service = service,
          .gate = gate_,
          .watch = watch_,
          .grpc = context,
          .id = id,
          .model = model_};
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
  StatusOr<GenerationService*> service = gate_.Enter();
  if (!service.ok()) return new RefusedStream(service.status());
  StatusOr<GenerateRequest> request = ReadRequest(*context, *bytes, **service);
  if (!request.ok()) {
    gate_.Leave();
    return new RefusedStream(request.status());
  }
  auto* stream = new GrpcTokenStream(MakeCall(*context, **service, request->id),
                                     max_backlog_chunks_);
  (*service)->Generate(*std::move(request), *stream);
  return stream;
}

grpc::ServerUnaryReactor* InferenceService::GenerateUnary(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
    grpc::ByteBuffer* response) {
  StatusOr<GenerationService*> service = gate_.Enter();
  if (!service.ok()) return Refuse(*context, service.status());
  StatusOr<GenerateRequest> request = ReadRequest(*context, *bytes, **service);
  if (!request.ok()) {
    gate_.Leave();
    return Refuse(*context, request.status());
  }
  auto* answer =
      new GrpcUnaryAnswer(MakeCall(*context, **service, request->id), *response);
  (*service)->Generate(*std::move(request), *answer);
  return answer;
}

template <class Compute>
grpc::ServerUnaryReactor* InferenceService::AnswerLater(
    grpc::CallbackServerContext* context, grpc::ByteBuffer* response, Compute compute) {
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
    reactor->Finish(ToGrpcStatus(ResourceExhausted("too many calls wait")));
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
