#include "transport/load_stream.h"

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>

#include <chrono>
#include <utility>
#include <vector>

#include "base/log.h"
#include "transport/proto_conversion.h"
#include "transport/status_mapping.h"
#include "transport/wire.h"

namespace renga {
namespace {

class RefusedLoad final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedLoad(const Status& status) { Finish(ToGrpcStatus(status)); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

// One call. It is always at one of three: a write under way, an alarm set, or finished.
// What is to follow is decided under the mutex and done after it.
class LoadStreams::Stream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                                  public WriteWatch::Watched {
 public:
  Stream(LoadStreams& owner, grpc::CallbackServerContext& context,
         GenerationService& service, Duration interval)
      : owner_(owner), context_(context), service_(service), interval_(interval) {
    owner_.watch_.Add(*this);
  }

  void Begin(std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    Write();
  }
  void End() RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ending_ = true;
    // It fires then, at once and on another thread.
    if (alarm_ != nullptr) alarm_->Cancel();
  }

 private:
  void Write() {
    v1::GetLoadResponse message;
    ToProto(service_.GetLoad(), message);
    in_flight_ = Encode(message);
    WriteBegins();
    StartWrite(&in_flight_);
  }

  void OnWriteDone(bool ok) override RENGA_EXCLUDES(mutex_) {
    WriteEnds();
    {
      MutexLock lock(mutex_);
      gone_ = gone_ || !ok;
      if (!gone_ && !ending_) return SetAlarm();
    }
    FinishNow();
  }

  void SetAlarm() RENGA_REQUIRES(mutex_) {
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(
        std::chrono::system_clock::now() +
            std::chrono::duration_cast<std::chrono::system_clock::duration>(interval_),
        // The stream stays: it does not finish while an alarm is set.
        [this](bool) { OnAlarm(); });
  }
  void OnAlarm() RENGA_EXCLUDES(mutex_) {
    bool go_on = false;
    {
      MutexLock lock(mutex_);
      go_on = !gone_ && !ending_;
    }
    if (go_on) return Write();
    FinishNow();
  }

  void FinishNow() { Finish(ToGrpcStatus(Unavailable("the server is shutting down"))); }

  void OnCancel() override RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    gone_ = true;
    if (alarm_ != nullptr) alarm_->Cancel();
  }
  void OnWriteStuck() override {
    LogWarn("write_timeout", {{"call", "WatchLoad"}});
    context_.TryCancel();
  }
  void OnDone() override {
    owner_.watch_.Remove(*this);
    owner_.Forget(std::exchange(self_, nullptr));
  }

  LoadStreams& owner_;
  grpc::CallbackServerContext& context_;
  GenerationService& service_;
  const Duration interval_;
  std::shared_ptr<Stream> self_;  // Until OnDone, which comes only after Finish.
  Mutex mutex_;
  bool gone_ RENGA_GUARDED_BY(mutex_) = false;
  bool ending_ RENGA_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ RENGA_GUARDED_BY(mutex_);  // The last one.
  grpc::ByteBuffer in_flight_;                                   // Belongs to the write.
};

grpc::ServerWriteReactor<grpc::ByteBuffer>* LoadStreams::Start(
    grpc::CallbackServerContext& context, GenerationService& service, Duration interval) {
  Status refusal;
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(mutex_);
    if (ended_) {
      refusal = Unavailable("the server is shutting down");
    } else if (streams_.size() >= kMaxStreams) {
      refusal = ResourceExhausted("too many calls of WatchLoad");
    } else {
      stream = std::make_shared<Stream>(*this, context, service, interval);
      streams_.insert(stream);
    }
  }
  if (stream == nullptr) {
    gate_.Leave();
    return new RefusedLoad(refusal);
  }
  Stream* const reactor = stream.get();
  reactor->Begin(std::move(stream));
  return reactor;
}

void LoadStreams::End() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    streams.assign(streams_.begin(), streams_.end());
  }
  for (const auto& stream : streams) stream->End();
}

void LoadStreams::Forget(const std::shared_ptr<Stream>& stream) {
  {
    MutexLock lock(mutex_);
    streams_.erase(stream);
  }
  gate_.Leave();  // Last: afterwards this may be gone.
}

}  // namespace renga
