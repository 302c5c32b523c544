#include "transport/grpc_unary_answer.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "transport/proto_conversion.h"
#include "transport/status_mapping.h"
#include "transport/wire.h"

namespace renga {

GrpcUnaryAnswer::GrpcUnaryAnswer(CallContext call, grpc::ByteBuffer& response)
    : call_(std::move(call)), response_(response) {
  call_.watch.Add(*this);
}

void GrpcUnaryAnswer::OnStart(const StartInfo& info) {
  v1::Started& started = *message_.mutable_started();
  ToProto(info, started);
  started.set_request_id(std::to_string(static_cast<uint64_t>(call_.id)));
  started.set_model(call_.model);
}

SinkVerdict GrpcUnaryAnswer::OnToken(const TokenChunk& chunk) {
  message_.mutable_text()->append(chunk.text);
  message_.mutable_token_ids()->Add(chunk.tokens.begin(), chunk.tokens.end());
  return SinkVerdict::kContinue;
}

void GrpcUnaryAnswer::OnDone(const Completion& completion) {
  if (completion.status.ok()) {
    ToProto(completion, *message_.mutable_finished());
    response_ = Encode(message_);
  }
  WriteBegins();  // Ends with gRPC's OnDone.
  Finish(ToGrpcStatus(completion.status));
}

// Harmless after the engine's OnDone: the service does not know the id any more.
void GrpcUnaryAnswer::OnCancel() { call_.service.Cancel(call_.id); }

void GrpcUnaryAnswer::OnWriteStuck() {
  LogWarn("write_timeout", {{"request", static_cast<uint64_t>(call_.id)}});
  call_.grpc.TryCancel();
}

void GrpcUnaryAnswer::OnDone() {
  call_.watch.Remove(*this);
  CallGate& gate = call_.gate;
  delete this;
  gate.Leave();
}

}  // namespace renga
