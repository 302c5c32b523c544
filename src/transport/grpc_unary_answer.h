// GrpcUnaryAnswer: the TokenSink of one GenerateUnary call, and the call's gRPC reactor.
//
// It collects the chunks (the engine's calls come one after another, so no lock) and
// finishes the call in OnDone(Completion). Lifetime as in GrpcTokenStream: Finish is
// called only there, so gRPC's OnDone is the last call of all and deletes the object. The
// answer is one write, with the write timeout of any other.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <optional>

#include "renga/token_sink.h"
#include "renga/v1/inference.pb.h"
#include "transport/grpc_token_stream.h"

namespace renga {

class GrpcUnaryAnswer final : public grpc::ServerUnaryReactor,
                              public TokenSink,
                              public WriteWatch::Watched {
 public:
  // `response` lives until Finish.
  GrpcUnaryAnswer(CallContext call, grpc::ByteBuffer& response);

  // TokenSink.
  void OnStart(const StartInfo& info) override;
  SinkVerdict OnToken(const TokenChunk& chunk) override;
  void OnChoiceEnd(const ChoiceEnd& end) override;
  void OnDone(const Completion& completion) override;

 private:
  ~GrpcUnaryAnswer() override = default;

  // ServerUnaryReactor.
  void OnCancel() override;
  void OnDone() override;

  // WriteWatch::Watched.
  void OnWriteStuck() override;

  // Of choice 1 and more; `message_` gets entries up to it.
  v1::Choice& MoreChoice(int32_t choice);

  const CallContext call_;
  grpc::ByteBuffer& response_;
  // The engine's calls only.
  std::optional<CallRegistry::Entry> entry_;  // Until the engine's OnDone.
  v1::GenerateUnaryResponse message_;
};

}  // namespace renga
