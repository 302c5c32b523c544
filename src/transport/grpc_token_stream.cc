#include "transport/grpc_token_stream.h"

#include <utility>

#include "base/log.h"
#include "transport/proto_conversion.h"
#include "transport/status_mapping.h"
#include "transport/wire.h"

namespace renga {

std::string AnswerId(RequestId id, const std::string& client_id) {
  return client_id.empty() ? std::to_string(static_cast<uint64_t>(id)) : client_id;
}

void CallContext::NameAnswer() const {
  grpc.AddInitialMetadata(kRequestIdHeader, AnswerId(id, client_id));
}

void CallContext::NameRefusal() const {
  grpc.AddTrailingMetadata(kRequestIdHeader, AnswerId(id, client_id));
}

GrpcTokenStream::GrpcTokenStream(CallContext call, int32_t max_backlog_chunks)
    : call_(std::move(call)), max_backlog_(static_cast<size_t>(max_backlog_chunks)) {
  entry_.emplace(call_.registry, call_.id, call_.tenant, call_.client_id);
  call_.watch.Add(*this);
}

void GrpcTokenStream::OnStart(const StartInfo& info) {
  v1::GenerateResponse message;
  v1::Started& started = *message.mutable_started();
  ToProto(info, call_.service, started);
  started.set_request_id(std::to_string(static_cast<uint64_t>(call_.id)));
  started.set_model(call_.model);
  call_.NameAnswer();
  started_ = true;
  Send(message);
}

SinkVerdict GrpcTokenStream::OnToken(const TokenChunk& chunk) {
  v1::GenerateResponse message;
  ToProto(chunk, call_.service, *message.mutable_chunk());
  grpc::ByteBuffer bytes = Encode(message);
  Action action;
  SinkVerdict verdict = SinkVerdict::kContinue;
  {
    MutexLock lock(mutex_);
    // A cancel is on its way to the engine.
    if (gone_) return SinkVerdict::kContinue;
    backlog_.push_back(std::move(bytes));
    action = TakeAction();
    if (backlog_.size() >= max_backlog_) {
      paused_ = true;
      verdict = SinkVerdict::kPause;
    }
  }
  Run(action);
  return verdict;
}

void GrpcTokenStream::OnChoiceEnd(const ChoiceEnd& end) {
  ToProto(end, ChoiceOf(finished_message_, end.choice));
  if (!call_.many_choices) return;
  v1::GenerateResponse message;
  ToProto(end, *message.mutable_choice_finished());
  Send(message);
}

void GrpcTokenStream::OnDone(const Completion& completion) {
  entry_.reset();
  if (!started_) call_.NameRefusal();
  v1::GenerateResponse message;
  const bool good = completion.status.ok();
  if (good) {
    ToProto(completion, finished_message_);
    message.mutable_finished()->Swap(&finished_message_);
  }
  Action action;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    paused_ = false;
    final_status_ = ToGrpcStatus(completion.status);
    if (good) backlog_.push_back(Encode(message));
    action = TakeAction();
  }
  // With nothing to do, another thread has the next action, and may have finished and
  // deleted the object by now.
  if (action != Action::kNothing) Run(action);
}

void GrpcTokenStream::OnWriteDone(bool ok) {
  const std::optional<Duration> took = WriteEnds();
  if (ok && took) call_.metrics.stream_write.Observe(*took);
  Action action;
  bool resume = false;
  bool lost = false;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok && !gone_) {
      gone_ = true;
      lost = !ended_;
    }
    action = TakeAction();
    if (paused_ && !gone_ && backlog_.size() < (max_backlog_ + 1) / 2) {
      paused_ = false;
      resume = true;
    }
  }
  // Before Run: both imply that the engine has not ended, so the object stays.
  if (lost) call_.service.Cancel(call_.id);
  if (resume) call_.service.Resume(call_.id);
  Run(action);
}

void GrpcTokenStream::OnCancel() {
  Action action;
  bool cancel = false;
  {
    MutexLock lock(mutex_);
    gone_ = true;
    cancel = !ended_;
    action = TakeAction();
  }
  // gRPC's OnDone waits for this reaction to return, so the object stays.
  if (cancel) call_.service.Cancel(call_.id);
  Run(action);
}

void GrpcTokenStream::OnDone() {
  call_.watch.Remove(*this);
  CallGate& gate = call_.gate;
  delete this;
  gate.Leave();
}

void GrpcTokenStream::OnWriteStuck() {
  LogWarn("write_timeout", {{"request", static_cast<uint64_t>(call_.id)}});
  bool ended = false;
  {
    MutexLock lock(mutex_);
    ended = ended_;
  }
  // While it runs the engine counts the cancel, by the stage it has reached.
  if (ended) call_.metrics.CountCancellation(CancelStage::kWrite);
  call_.grpc.TryCancel();
}

void GrpcTokenStream::Send(const v1::GenerateResponse& message) {
  grpc::ByteBuffer bytes = Encode(message);
  Action action;
  {
    MutexLock lock(mutex_);
    if (gone_) return;
    backlog_.push_back(std::move(bytes));
    action = TakeAction();
  }
  Run(action);
}

GrpcTokenStream::Action GrpcTokenStream::TakeAction() {
  if (gone_) backlog_.clear();
  if (writing_ || finished_) return Action::kNothing;
  if (backlog_.empty()) {
    if (!ended_) return Action::kNothing;
    finished_ = true;
    return Action::kFinish;
  }
  in_flight_ = backlog_.front();  // Shares the bytes.
  backlog_.pop_front();
  writing_ = true;
  return Action::kWrite;
}

void GrpcTokenStream::Run(Action action) {
  switch (action) {
    case Action::kNothing:
      return;
    case Action::kWrite:
      WriteBegins();
      StartWrite(&in_flight_);
      return;
    case Action::kFinish:
      Finish(std::move(final_status_));
      return;
  }
}

}  // namespace renga
