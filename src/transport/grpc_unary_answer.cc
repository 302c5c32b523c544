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
  entry_.emplace(call_.registry, call_.id, call_.tenant, call_.client_id);
  call_.watch.Add(*this);
}

void GrpcUnaryAnswer::OnStart(const StartInfo& info) {
  v1::Started& started = *message_.mutable_started();
  ToProto(info, call_.service, started);
  started.set_request_id(std::to_string(static_cast<uint64_t>(call_.id)));
  started.set_model(call_.model);
}

namespace {

// Choice 0 stands in the answer itself, the others in messages with the same fields.
template <class Message>
void Append(const TokenChunk& chunk, GenerationService& service, Message& message) {
  message.mutable_text()->append(chunk.text);
  message.mutable_token_ids()->Add(chunk.tokens.begin(), chunk.tokens.end());
  AddToProto(chunk.logprobs, service, *message.mutable_logprobs());
}

}  // namespace

SinkVerdict GrpcUnaryAnswer::OnToken(const TokenChunk& chunk) {
  if (chunk.choice == 0) {
    Append(chunk, call_.service, message_);
  } else {
    Append(chunk, call_.service, MoreChoice(chunk.choice));
  }
  return SinkVerdict::kContinue;
}

void GrpcUnaryAnswer::OnChoiceEnd(const ChoiceEnd& end) {
  ToProto(end, ChoiceOf(*message_.mutable_finished(), end.choice));
  if (end.choice > 0) MoreChoice(end.choice);  // Even if it had no chunk.
}

v1::Choice& GrpcUnaryAnswer::MoreChoice(int32_t choice) {
  while (message_.more_choices_size() < choice) {
    message_.add_more_choices()->set_choice(message_.more_choices_size());
  }
  return *message_.mutable_more_choices(choice - 1);
}

void GrpcUnaryAnswer::OnDone(const Completion& completion) {
  entry_.reset();
  if (completion.status.ok()) {
    ToProto(completion, *message_.mutable_finished());
    response_ = Encode(message_);
    call_.NameAnswer();
  } else {
    call_.NameRefusal();
  }
  WriteBegins();  // Ends with gRPC's OnDone.
  Finish(ToGrpcStatus(completion.status));
}

// Harmless after the engine's OnDone: the service does not know the id any more.
void GrpcUnaryAnswer::OnCancel() { call_.service.Cancel(call_.id); }

void GrpcUnaryAnswer::OnWriteStuck() {
  LogWarn("write_timeout", {{"request", static_cast<uint64_t>(call_.id)}});
  call_.metrics.CountCancellation(CancelStage::kWrite);
  call_.grpc.TryCancel();
}

void GrpcUnaryAnswer::OnDone() {
  call_.watch.Remove(*this);
  CallGate& gate = call_.gate;
  delete this;
  gate.Leave();
}

}  // namespace renga
