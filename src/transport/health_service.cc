#include "transport/health_service.h"

#include <string>
#include <utility>
#include <vector>

namespace renga {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ServingStatus = HealthCheckResponse::ServingStatus;

// More are refused: each holds memory for as long as its client likes.
constexpr size_t kMaxWatches = 1024;

bool IsKnown(const std::string& service) {
  return service.empty() || service == "renga.v1.Inference";
}

ServingStatus ToServingStatus(bool serving) {
  return serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

class RefusedWatch final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  explicit RefusedWatch(const grpc::Status& status) { Finish(status); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

// One Watch call. Writes the newest state; a client that reads slowly misses states in
// between, never the last one. Like GrpcTokenStream it decides under its mutex and acts
// after it: `writing_` and `finished_` are set first, so one thread acts at a time.
class HealthService::WatchStream final
    : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  WatchStream(HealthService& health, bool known) : health_(health), known_(known) {}

  // gRPC's OnDone comes only after Finish, so `self_` holds the stream until then.
  void Own(std::shared_ptr<WatchStream> self) { self_ = std::move(self); }

  // The state is read under this stream's mutex, so that of two calls the later one has
  // the newer state.
  void Tell() {
    Step([&] {
      wanted_ = known_ ? ToServingStatus(health_.Serving())
                       : HealthCheckResponse::SERVICE_UNKNOWN;
    });
  }
  void End() {
    Step([&] { ending_ = true; });
  }

 private:
  void OnWriteDone(bool ok) override {
    Step([&] {
      writing_ = false;
      gone_ = gone_ || !ok;
    });
  }
  void OnCancel() override {
    Step([&] { gone_ = true; });
  }
  void OnDone() override {
    const std::shared_ptr<WatchStream> self = std::move(self_);
    health_.Forget(self);
  }

  // Changes the state and does what follows from it.
  template <class Change>
  void Step(Change change) RENGA_EXCLUDES(mutex_) {
    bool write = false;
    bool finish = false;
    {
      MutexLock lock(mutex_);
      change();
      if (writing_ || finished_) return;
      write = !gone_ && wanted_ != sent_;
      finish = !write && (gone_ || ending_);
      if (write) {
        writing_ = true;
        sent_ = wanted_;
        in_flight_.set_status(sent_);
      }
      if (finish) finished_ = true;
    }
    if (write) StartWrite(&in_flight_);
    if (finish) Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down"));
  }

  HealthService& health_;
  const bool known_;
  std::shared_ptr<WatchStream> self_;
  Mutex mutex_;
  // Guarded by mutex_ (the lambdas above are out of the analysis' sight).
  ServingStatus wanted_ = HealthCheckResponse::UNKNOWN;
  ServingStatus sent_ = HealthCheckResponse::UNKNOWN;
  bool writing_ = false;
  bool gone_ = false;
  bool ending_ = false;
  bool finished_ = false;
  HealthCheckResponse in_flight_;  // Belongs to the write while writing_.
};

void HealthService::SetServing(bool serving) {
  std::vector<std::shared_ptr<WatchStream>> watches;
  {
    MutexLock lock(mutex_);
    if (serving_ == serving || ending_) return;
    serving_ = serving;
    watches.assign(watches_.begin(), watches_.end());
  }
  for (const auto& watch : watches) watch->Tell();
}

bool HealthService::Serving() const {
  MutexLock lock(mutex_);
  return serving_;
}

void HealthService::EndWatches() {
  std::vector<std::shared_ptr<WatchStream>> watches;
  {
    MutexLock lock(mutex_);
    ending_ = true;
    watches.assign(watches_.begin(), watches_.end());
  }
  for (const auto& watch : watches) watch->End();
}

void HealthService::Forget(const std::shared_ptr<WatchStream>& stream) {
  MutexLock lock(mutex_);
  watches_.erase(stream);
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!IsKnown(request->service())) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "no such service"));
    return reactor;
  }
  response->set_status(ToServingStatus(Serving()));
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* /*context*/, const HealthCheckRequest* request) {
  auto stream = std::make_shared<WatchStream>(*this, IsKnown(request->service()));
  {
    MutexLock lock(mutex_);
    if (ending_ || watches_.size() >= kMaxWatches) {
      return new RefusedWatch(
          ending_
              ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down")
              : grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watches"));
    }
    watches_.insert(stream);
  }
  stream->Own(stream);
  stream->Tell();
  return stream.get();
}

}  // namespace renga
