// AdminService: renga.v1.Admin over a ServerControl. It asks for the key, decodes,
// converts and calls.
//
// Threads: gRPC's callback threads; FlushCache, which waits for the engine, runs on a
// TaskThread.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <memory>

#include "renga/server_control.h"
#include "renga/v1/admin.grpc.pb.h"
#include "transport/api_keys.h"
#include "transport/task_thread.h"

namespace renga {

// "Raw": gRPC hands over bytes, see wire.h.
using RawAdminBase = v1::Admin::WithRawCallbackMethod_MemoryReport<
    v1::Admin::WithRawCallbackMethod_FlushCache<v1::Admin::WithRawCallbackMethod_Drain<
        v1::Admin::WithRawCallbackMethod_SetLogLevel<v1::Admin::Service>>>>;

class AdminService final : public RawAdminBase {
 public:
  // `keys`: nullptr where keys are off.
  explicit AdminService(std::shared_ptr<const ApiKeys> keys);

  // Calls are refused UNAVAILABLE before.
  void Open(ServerControl& control) { control_ = &control; }

  grpc::ServerUnaryReactor* MemoryReport(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* bytes,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* FlushCache(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* bytes,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* bytes,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* bytes,
                                        grpc::ByteBuffer* response) override;

 private:
  // The control, if this caller may use it now, with the request in `message`.
  StatusOr<ServerControl*> Admit(const grpc::CallbackServerContext& context,
                                 const grpc::ByteBuffer& bytes,
                                 google::protobuf::Message& message) const;

  const std::shared_ptr<const ApiKeys> keys_;
  std::atomic<ServerControl*> control_{nullptr};
  TaskThread tasks_;  // Last: its tasks use the others.
};

}  // namespace renga
