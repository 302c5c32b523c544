// LoadStreams: the WatchLoad calls. Each writes the load at once and then again after
// each interval; a client that reads slowly gets the newest, later.
//
// Thread safety: every method may be called from any thread.
// Invariants: a stream is inside the CallGate from its start to gRPC's OnDone; after End
// no stream goes on and no new one comes in.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <unordered_set>

#include "base/mutex.h"
#include "renga/generation_service.h"
#include "transport/call_gate.h"
#include "transport/write_watch.h"

namespace renga {

class LoadStreams {
 public:
  static constexpr size_t kMaxStreams = 256;

  // Both outlive this.
  LoadStreams(CallGate& gate, WriteWatch& watch) : gate_(gate), watch_(watch) {}

  // The reactor of a call. `service` was given by the gate, which is left at the call's
  // end.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(grpc::CallbackServerContext& context,
                                                    GenerationService& service,
                                                    Duration interval)
      RENGA_EXCLUDES(mutex_);
  // Ends all streams, UNAVAILABLE.
  void End() RENGA_EXCLUDES(mutex_);

 private:
  class Stream;

  void Forget(const std::shared_ptr<Stream>& stream) RENGA_EXCLUDES(mutex_);

  CallGate& gate_;
  WriteWatch& watch_;
  Mutex mutex_;
  bool ended_ RENGA_GUARDED_BY(mutex_) = false;
  // Shared with the streams themselves: one may end while it is being told something.
  std::unordered_set<std::shared_ptr<Stream>> streams_ RENGA_GUARDED_BY(mutex_);
};

}  // namespace renga
