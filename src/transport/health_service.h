// HealthService: grpc.health.v1 Check and Watch.
//
// Not gRPC's own default service: that one says SERVING from the moment the port is open
// until somebody corrects it, and its Watch streams hold up a shutdown. And this one can
// be described by reflection.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <unordered_set>

#include "base/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace renga {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // Not serving at first. The same for "" and "renga.v1.Inference".
  void SetServing(bool serving) RENGA_EXCLUDES(mutex_);
  // Ends all Watch streams, after their last state was sent, and refuses new ones.
  void EndWatches() RENGA_EXCLUDES(mutex_);

  grpc::ServerUnaryReactor* Check(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request,
      grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class WatchStream;

  bool Serving() const RENGA_EXCLUDES(mutex_);
  void Forget(const std::shared_ptr<WatchStream>& stream) RENGA_EXCLUDES(mutex_);

  // Lock order: a stream's mutex, then this one.
  mutable Mutex mutex_;
  bool serving_ RENGA_GUARDED_BY(mutex_) = false;
  bool ending_ RENGA_GUARDED_BY(mutex_) = false;
  // Shared with the streams themselves: one may end while it is being told something.
  std::unordered_set<std::shared_ptr<WatchStream>> watches_ RENGA_GUARDED_BY(mutex_);
};

}  // namespace renga
