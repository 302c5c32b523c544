// Calls an RPC by its name with raw bytes, as a client without our stubs would.

#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace renga {

using Metadata = std::vector<std::pair<std::string, std::string>>;

struct RawAnswer {
  std::string first;  // The first message; empty if none came.
  grpc::Status status;
};

// Sends one message and reads until the call ends. Works for unary and for streamed RPCs;
// WatchLoad, which has no end of its own, is cancelled after its first message.
inline RawAnswer RawCall(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& method, const Metadata& metadata,
                         const std::string& bytes = "") {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  for (const auto& [name, value] : metadata) context.AddMetadata(name, value);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, method, &queue);
  void* tag = nullptr;
  bool ok = false;
  RawAnswer answer;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  grpc::Slice slice(bytes);
  if (ok) {
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    queue.Next(&tag, &ok);
  }
  for (int read = 0;; ++read) {
    grpc::ByteBuffer response;
    call->Read(&response, nullptr);
    queue.Next(&tag, &ok);
    if (!ok) break;
    if (method.ends_with("/WatchLoad")) context.TryCancel();
    grpc::Slice all;
    if (read == 0 && response.DumpToSingleSlice(&all).ok()) {
      answer.first.assign(reinterpret_cast<const char*>(all.begin()), all.size());
    }
  }
  call->Finish(&answer.status, nullptr);
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return answer;
}

// "/renga.v1.Inference/Generate" and so on, of every method that the service has.
inline std::vector<std::string> MethodsOf(const std::string& service) {
  std::vector<std::string> methods;
  const auto* found =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
  for (int i = 0; found != nullptr && i < found->method_count(); ++i) {
    methods.push_back("/" + service + "/" + found->method(i)->name());
  }
  return methods;
}

}  // namespace renga
