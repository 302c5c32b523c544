// GrpcTokenStream: the TokenSink of one streamed call, and the call's gRPC reactor.
//
// Three parties call it, each on threads of its own:
//   engine   OnStart, OnToken..., OnChoiceEnd..., OnDone(Completion): once, its last call
//   gRPC     OnWriteDone after each write; OnCancel at most once; OnDone(): once, its
//   last watch    OnWriteStuck: a write takes longer than the write timeout
//
// State, all under `mutex_`:
//   backlog_    encoded messages that wait for their turn, oldest first
//   writing_    a write is in flight, or about to start: at most one
//   paused_     the engine was told kPause and not yet Resume
//   gone_       the client can't be reached: cancelled, reset, cut. Nothing is written
//   ended_      the engine's OnDone came; `final_status_` is set
//   finished_   gRPC's Finish was called, or is about to be
//
// Every event changes the state and then asks TakeAction what to do next:
//
//   gone_:     backlog_ is dropped;  ended_ && !writing_          -> Finish
//   !writing_: backlog_ not empty                                 -> write the oldest
//              backlog_ empty && ended_                           -> Finish
//   (not one operation for the last message and Finish: gRPC 1.51 loses the message on an
//   in-process channel)
//
// The action runs after the mutex is released. That is safe since `writing_` and
// `finished_` are set before: no other thread can take a second action meanwhile.
//
// Lifetime: Finish is called only after the engine's OnDone and with no write in flight,
// and gRPC's OnDone comes only after Finish. So gRPC's OnDone is the last call of all
// three parties, and deletes the object. Nothing may be touched after Finish; nor in the
// engine's OnDone once the mutex is released, unless the next action is its own. All
// other calls hold the object: `ended_` is not set yet, or gRPC waits for them to return.
//
// Cancelling: OnCancel, and a write that failed, tell the service to cancel; its engine
// then calls OnDone like for any other end. A stuck write is broken by TryCancel, which
// makes gRPC fail the write and call OnCancel.

#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "metrics/server_metrics.h"
#include "renga/generation_service.h"
#include "renga/token_sink.h"
#include "renga/v1/inference.pb.h"
#include "transport/call_gate.h"
#include "transport/call_registry.h"
#include "transport/write_watch.h"

namespace renga {

// What a call needs of the server; all outlive it.
struct CallContext {
  GenerationService& service;
  ServerMetrics& metrics;
  CallGate& gate;  // Left when the call has ended.
  WriteWatch& watch;
  CallRegistry& registry;
  grpc::CallbackServerContext& grpc;
  std::string model;  // The loaded model's name.
  // Of the request.
  RequestId id{};
  std::string tenant{};
  std::string client_id{};  // Its x-request-id; "" without one.
  bool many_choices = false;

  // Sends the x-request-id with the answer's first message...
  void NameAnswer() const;
  // ... or, if there is none, with the status: gRPC then sends nothing but trailers, by
  // which a proxy sees that the call failed before it began, and may try elsewhere.
  void NameRefusal() const;
};

// The value of the header `x-request-id` that an answer has: the client's own, or else
// the server's.
std::string AnswerId(RequestId id, const std::string& client_id);
inline constexpr char kRequestIdHeader[] = "x-request-id";

class GrpcTokenStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                              public TokenSink,
                              public WriteWatch::Watched {
 public:
  // The caller returns it to gRPC, and gives it to service.Generate. Never deleted by
  // hand.
  GrpcTokenStream(CallContext call, int32_t max_backlog_chunks);

  // TokenSink.
  void OnStart(const StartInfo& info) override;
  SinkVerdict OnToken(const TokenChunk& chunk) override;
  void OnChoiceEnd(const ChoiceEnd& end) override;
  void OnDone(const Completion& completion) override;

 private:
  enum class Action { kNothing, kWrite, kFinish };

  ~GrpcTokenStream() override = default;

  // ServerWriteReactor.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // WriteWatch::Watched.
  void OnWriteStuck() override;

  // Puts a message into the backlog, and writes it if it is its turn.
  void Send(const v1::GenerateResponse& message) RENGA_EXCLUDES(mutex_);
  // Decides what comes next and marks it as begun; with kWrite the message is in
  // `in_flight_`.
  Action TakeAction() RENGA_REQUIRES(mutex_);
  // Does it. `this` may be gone afterwards if it was a finish.
  void Run(Action action) RENGA_EXCLUDES(mutex_);

  const CallContext call_;
  const size_t max_backlog_;

  // The engine's calls only.
  std::optional<CallRegistry::Entry> entry_;  // Until the engine's OnDone.
  v1::Finished finished_message_;             // Its choices, as they end.
  bool started_ = false;

  Mutex mutex_;
  std::deque<grpc::ByteBuffer> backlog_ RENGA_GUARDED_BY(mutex_);
  bool writing_ RENGA_GUARDED_BY(mutex_) = false;
  bool paused_ RENGA_GUARDED_BY(mutex_) = false;
  bool gone_ RENGA_GUARDED_BY(mutex_) = false;
  bool ended_ RENGA_GUARDED_BY(mutex_) = false;
  bool finished_ RENGA_GUARDED_BY(mutex_) = false;

  // Written under the mutex before an action, read by the action alone.
  grpc::ByteBuffer in_flight_;
  grpc::Status final_status_;
};

}  // namespace renga
