// One gRPC port with its services: address, limits and logging, the same for all of ours.

#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "renga/status.h"

namespace renga {

struct ListenOptions {
  std::string address;  // "127.0.0.1:50051"; port 0: any free one.
  std::string field;    // The setting's name, for errors.
  int32_t max_message_bytes = 8 << 20;
  // grpc.reflection.v1alpha. It is gRPC's own service and can't be asked for a key.
  bool reflection = true;
  std::vector<grpc::Service*> services{};
};

struct GrpcListener {
  std::unique_ptr<grpc::Server> server;  // Shut it down before it is destroyed.
  int port = 0;
  std::string address;  // With the bound port.
};

// Fails with the option's field if the address can't be had.
StatusOr<GrpcListener> ListenGrpc(const ListenOptions& options);

// Refuses new connections, gives running calls a second, then ends them and waits.
void ShutdownGrpc(grpc::Server& server);

}  // namespace renga
