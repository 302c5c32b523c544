// InferenceClient: the gateway's calls of the native API, over one or several servers.
//
// A call goes to one target: by its session if it has one, else in turn. If that target
// cannot be reached, or is not ready, before anything of an answer has come, the next one
// is asked; a target that failed is left out for a while.
//
// Thread rule: a call's methods are called on its owner's loop, and its callbacks run
// there. Calls may be started from any thread. Nothing blocks.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gateway/activity_count.h"
#include "renga/status.h"
#include "renga/v1/inference.pb.h"

namespace renga {

// Who asks, and where the answers go.
struct CallOrigin {
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string session;                              // May be empty.
  std::function<void(std::function<void()>)> post;  // Runs a task on the owner's loop.
};

// A call under way. Letting it go does not end it.
class ClientCall {
 public:
  virtual ~ClientCall() = default;
  // Nothing of it will be heard any more; the server is told.
  virtual void Cancel() = 0;
};

// What is known of the server that answers a generation.
struct TargetInfo {
  std::string numerics_id;  // Empty: not known.
};

class GenerateObserver {
 public:
  virtual ~GenerateObserver() = default;
  // The next message; the one after it is only read when Next() is called. `call` is the
  // number given to StartGenerate.
  virtual void OnEvent(size_t call, const TargetInfo& target,
                       v1::GenerateResponse& event) = 0;
  // Last; not after Cancel.
  virtual void OnEnd(size_t call, const Status& status) = 0;
};

class GenerateCall : public ClientCall {
 public:
  virtual void Next() = 0;
};

template <class Response>
using UnaryDone = std::function<void(const Status&, const TargetInfo&, Response&)>;

// A server to call.
struct GatewayTarget {
  // Not explicit: a channel is a target without a name.
  GatewayTarget(std::shared_ptr<grpc::Channel> c, std::string n = "")
      : channel(std::move(c)), name(std::move(n)) {}

  std::shared_ptr<grpc::Channel> channel;
  std::string name;  // "host:port", for the log; empty: it is not logged.
};

class InferenceClient {
 public:
  // `targets` are not empty.
  explicit InferenceClient(const std::vector<GatewayTarget>& targets);
  ~InferenceClient();  // REQUIRES: no call is under way.

  // `observer` must live until OnEnd or Cancel: the call keeps it.
  std::shared_ptr<GenerateCall> Generate(size_t call, CallOrigin origin,
                                         const v1::GenerateRequest& request,
                                         std::shared_ptr<GenerateObserver> observer);
  std::shared_ptr<ClientCall> GenerateUnary(CallOrigin origin,
                                            const v1::GenerateRequest& request,
                                            UnaryDone<v1::GenerateUnaryResponse> done);
  std::shared_ptr<ClientCall> Tokenize(CallOrigin origin,
                                       const v1::TokenizeRequest& request,
                                       UnaryDone<v1::TokenizeResponse> done);
  std::shared_ptr<ClientCall> Detokenize(CallOrigin origin,
                                         const v1::DetokenizeRequest& request,
                                         UnaryDone<v1::DetokenizeResponse> done);
  std::shared_ptr<ClientCall> GetModel(CallOrigin origin,
                                       UnaryDone<v1::GetModelResponse> done);

  size_t target_count() const;
  // Of one target, whatever its state.
  std::shared_ptr<ClientCall> GetLoad(size_t target, const CallOrigin& origin,
                                      UnaryDone<v1::GetLoadResponse> done);
  // grpc.health.v1: OK if it is serving.
  std::shared_ptr<ClientCall> CheckHealth(size_t target, const CallOrigin& origin,
                                          std::function<void(bool serving)> done);

  // Calls whose last callback has not returned.
  ActivityCount& calls();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// What a channel to a server needs, in one process or apart: answers of any size.
grpc::ChannelArguments TargetChannelArguments();
// A channel to a server apart, "host:port". It connects when it is needed. A server that
// answers nothing for `ping` is pinged; the calls of one that does not answer this either
// for as long end UNAVAILABLE: a frozen machine holds none for ever.
std::shared_ptr<grpc::Channel> MakeTargetChannel(
    const std::string& address, Duration ping = std::chrono::seconds(10));

}  // namespace renga
