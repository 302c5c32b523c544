// InferenceService: renga.v1.Inference over a GenerationService. It asks for the key,
// decodes, converts and calls; it decides nothing.
//
// Threads: gRPC's callback threads run the handlers, which return at once; Tokenize,
// Detokenize and GetModel compute on a TaskThread. GetLoad, WatchLoad and Cancel wait for
// nothing.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "metrics/server_metrics.h"
#include "renga/config.h"
#include "renga/v1/inference.grpc.pb.h"
#include "transport/api_keys.h"
#include "transport/call_gate.h"
#include "transport/call_registry.h"
#include "transport/grpc_token_stream.h"
#include "transport/load_stream.h"
#include "transport/task_thread.h"
#include "transport/write_watch.h"

namespace renga {

// "Raw": gRPC hands over bytes, see wire.h.
using RawInferenceBase = v1::Inference::WithRawCallbackMethod_Generate<
    v1::Inference::WithRawCallbackMethod_GenerateUnary<
        v1::Inference::WithRawCallbackMethod_Tokenize<
            v1::Inference::WithRawCallbackMethod_Detokenize<
                v1::Inference::WithRawCallbackMethod_GetModel<
                    v1::Inference::WithRawCallbackMethod_GetLoad<
                        v1::Inference::WithRawCallbackMethod_WatchLoad<
                            v1::Inference::WithRawCallbackMethod_Cancel<
                                v1::Inference::Service>>>>>>>>;

class InferenceService final : public RawInferenceBase {
 public:
  // `keys`: nullptr where keys are off.
  InferenceService(const GrpcSettings& settings, std::shared_ptr<const ApiKeys> keys);

  // Calls are refused UNAVAILABLE before Open and, but for GetLoad and Cancel, after
  // Close.
  void Open(GenerationService& service, ServerMetrics& metrics);
  void Close() {
    gate_.Close();
    loads_.End();
  }
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
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* bytes,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchLoad(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* bytes,
                                   grpc::ByteBuffer* response) override;

 private:
  // A generation call that may go on: it is inside the gate.
  struct Admitted {
    GenerateRequest request;
    CallContext call;
  };

  StatusOr<Admitted> Admit(grpc::CallbackServerContext& context,
                           const grpc::ByteBuffer& bytes);
  // Decodes a generation request and fills in what comes from the call itself.
  StatusOr<GenerateRequest> ReadRequest(grpc::CallbackServerContext& context,
                                        const grpc::ByteBuffer& bytes,
                                        const std::string& tenant, RequestId id) const;
  // Of what never reaches the service, which counts the others. Only inside the gate.
  void CountRefusal(RejectReason reason);
  // The same from outside of it, also while the server drains.
  void CountOutside(RejectReason reason);
  // Who calls. A caller whose key is not known is counted.
  StatusOr<std::string> IdentifyCaller(const grpc::CallbackServerContext& context);
  // Hands it to the service; a cancel that came meanwhile is not lost.
  void Start(GenerationService& service, GenerateRequest request, TokenSink& sink);
  // Answers with what `compute` (GenerationService&, tenant -> StatusOr<message>) says,
  // in this thread; also while the server drains.
  template <class Compute>
  grpc::ServerUnaryReactor* AnswerNow(grpc::CallbackServerContext* context,
                                      grpc::ByteBuffer* response, Compute compute);
  // Runs `compute` (GenerationService& -> StatusOr<message>) on the task thread and
  // answers with its result.
  template <class Compute>
  grpc::ServerUnaryReactor* AnswerLater(grpc::CallbackServerContext* context,
                                        grpc::ByteBuffer* response, Compute compute);

  const int32_t max_backlog_chunks_;
  const std::shared_ptr<const ApiKeys> keys_;
  CallGate gate_;
  WriteWatch watch_;
  LoadStreams loads_{gate_, watch_};
  CallRegistry registry_;
  // Written by Open before the gate opens.
  std::string model_;
  ServerMetrics* metrics_ = nullptr;
  TaskThread tasks_;  // Last: its tasks use the others.
};

}  // namespace renga
