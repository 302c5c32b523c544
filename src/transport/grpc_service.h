// InferenceService: renga.v1.Inference over a GenerationService. It decodes, converts and
// calls; it decides nothing.
//
// Threads: gRPC's callback threads run the handlers, which return at once; Tokenize and
// Detokenize compute on a TaskThread.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <string>

#include "renga/config.h"
#include "renga/v1/inference.grpc.pb.h"
#include "transport/call_gate.h"
#include "transport/grpc_token_stream.h"
#include "transport/task_thread.h"
#include "transport/write_watch.h"

namespace renga {

// "Raw": gRPC hands over bytes, see wire.h.
using RawInferenceBase = v1::Inference::WithRawCallbackMethod_Generate<
    v1::Inference::WithRawCallbackMethod_GenerateUnary<
        v1::Inference::WithRawCallbackMethod_Tokenize<
            v1::Inference::WithRawCallbackMethod_Detokenize<
                v1::Inference::WithRawCallbackMethod_GetModel<v1::Inference::Service>>>>>;

class InferenceService final : public RawInferenceBase {
 public:
  explicit InferenceService(const GrpcSettings& settings);

  // Calls are refused UNAVAILABLE before Open and after Close.
  void Open(GenerationService& service);
  void Close() { gate_.Close(); }
  CallGate& gate() { return gate_; }
  const CallGate& gate() const { return gate_; }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) override;
  grpc::ServerUnaryReactor* GenerateUnary(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* bytes,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* bytes,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* bytes,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* bytes,
                                     grpc::ByteBuffer* response) override;

 private:
  // Decodes a generation request and fills in what comes from the call itself.
  StatusOr<GenerateRequest> ReadRequest(grpc::CallbackServerContext& context,
                                        const grpc::ByteBuffer& bytes,
                                        GenerationService& service);
  CallContext MakeCall(grpc::CallbackServerContext& context, GenerationService& service,
                       RequestId id);
  // Runs `compute` (GenerationService& -> StatusOr<message>) on the task thread and
  // answers with its result.
  template <class Compute>
  grpc::ServerUnaryReactor* AnswerLater(grpc::CallbackServerContext* context,
                                        grpc::ByteBuffer* response, Compute compute);

  const int32_t max_backlog_chunks_;
  CallGate gate_;
  WriteWatch watch_;
  std::string model_;  // Written by Open before the gate opens.
  TaskThread tasks_;   // Last: its tasks use the others.
};

}  // namespace renga
