// Calls keep themselves alive until gRPC is done with them; every callback of gRPC only
// posts to the owner's loop.

#include "gateway/inference_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/log.h"
#include "gateway/grpc_status.h"
#include "gateway/target_picker.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "renga/v1/inference.grpc.pb.h"

namespace renga {
namespace {

// How long what a server said about itself is believed.
constexpr std::chrono::seconds kInfoTime{60};
// A server that does not even answer this is not there.
constexpr std::chrono::seconds kProbeTimeout{2};
// For what a server answers without computing.
constexpr std::chrono::seconds kQueryTimeout{10};
// The longest that the native API knows.
constexpr std::chrono::hours kMaxDeadline{24};

using Timeout = std::optional<Duration>;

TimePoint Now() { return std::chrono::steady_clock::now(); }

void AddMetadata(const CallOrigin& origin, grpc::ClientContext& context) {
  for (const auto& [key, value] : origin.metadata) context.AddMetadata(key, value);
}

// The server ends a call at its deadline itself; this is for a server that says nothing
// any more.
Timeout TimeoutOf(const v1::GenerateRequest& request) {
  if (!request.has_deadline_ms()) return std::nullopt;
  using std::chrono::milliseconds;
  return std::clamp<milliseconds>(milliseconds(request.deadline_ms()), milliseconds(0),
                                  kMaxDeadline) +
         kProbeTimeout;
}

void SetTimeout(Timeout timeout, grpc::ClientContext& context) {
  if (!timeout) return;
  context.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::duration_cast<std::chrono::system_clock::duration>(*timeout));
}

// gRPC cancels what reaches a server in the moment of its end; renga's own cancellations
// say why.
bool WasNotTaken(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         (status.error_code() == grpc::StatusCode::CANCELLED &&
          status.error_message() == "CANCELLED");
}

grpc::Status NotTaken() { return {grpc::StatusCode::UNAVAILABLE, ""}; }

// One server.
struct Target {
  explicit Target(const GatewayTarget& target)
      : name(target.name),
        inference(v1::Inference::NewStub(target.channel)),
        health(grpc::health::v1::Health::NewStub(target.channel)) {}

  std::optional<TargetInfo> FreshInfo() RENGA_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    if (Now() >= info_until) return std::nullopt;
    return info;
  }
  void SetInfo(TargetInfo known) RENGA_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    info = std::move(known);
    info_until = Now() + kInfoTime;
  }
  void ForgetInfo() RENGA_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    info_until = {};
  }

  const std::string name;
  const std::unique_ptr<v1::Inference::Stub> inference;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health;
  Mutex mutex;
  TargetInfo info RENGA_GUARDED_BY(mutex);
  TimePoint info_until RENGA_GUARDED_BY(mutex){};
};

struct Parts {
  explicit Parts(size_t count) : picker(count) {}
  std::vector<std::unique_ptr<Target>> targets;
  TargetPicker picker;
  ActivityCount calls;
};

// One unary RPC on one target.
template <class Request, class Response>
struct UnaryAttempt {
  grpc::ClientContext context;
  Request request;
  Response response;
};

// Sends `request` by `method(context, request, response, callback)`; `done` runs on the
// loop of `origin`.
template <class Request, class Response, class Method>
std::shared_ptr<UnaryAttempt<Request, Response>> SendUnary(
    ActivityCount& calls, const CallOrigin& origin, const Request& request,
    Timeout timeout, Method method,
    std::function<void(const grpc::Status&, Response&)> done) {
  auto attempt = std::make_shared<UnaryAttempt<Request, Response>>();
  attempt->request = request;
  AddMetadata(origin, attempt->context);
  SetTimeout(timeout, attempt->context);
  calls.Enter();
  method(&attempt->context, &attempt->request, &attempt->response,
         [&calls, attempt, post = origin.post,
          done = std::move(done)](const grpc::Status& status) {
           post([&calls, attempt, done, status] {
             done(status, attempt->response);
             calls.Leave();
           });
         });
  return attempt;
}

// A call that goes to one target after the other until one has answered.
class RoutedCall {
 public:
  RoutedCall(Parts& parts, CallOrigin origin)
      : parts_(parts), origin_(std::move(origin)) {}
  virtual ~RoutedCall() = default;

 protected:
  // Sends the call to the next target. REQUIRES: there is one that was not tried.
  void SendToNext() {
    number_ = parts_.picker.Pick(origin_.session, tried_, Now());
    tried_.push_back(number_);
    SendTo(*parts_.targets[static_cast<size_t>(number_)]);
  }
  virtual void SendTo(Target& target) = 0;

  // After an attempt that brought nothing: whether it is worth another target.
  bool ShouldTryNext(const grpc::Status& status) {
    if (!WasNotTaken(status)) {
      if (status.ok()) Worked();
      return false;
    }
    target().ForgetInfo();
    return PassOver();
  }
  // Leaves the target out for a while; false if there is no other to go to.
  bool PassOver() {
    if (parts_.picker.Failed(number_, Now()) && !target().name.empty()) {
      LogWarn("target_unreachable", {{"target", target().name}});
    }
    return !cancelled_ && tried_.size() < parts_.targets.size();
  }

  void Worked() {
    if (parts_.picker.Worked(number_) && !target().name.empty()) {
      LogInfo("target_reachable", {{"target", target().name}});
    }
  }
  Target& target() { return *parts_.targets[static_cast<size_t>(number_)]; }

  Parts& parts_;
  const CallOrigin origin_;
  bool cancelled_ = false;

 private:
  std::vector<int> tried_;
  int number_ = 0;
};

// What is known of the target first; then `then(info, silent)` on the loop. A server that
// cannot say is none the worse for it: the call itself will tell. A silent one does not
// answer at all.
template <class Then>
void WithInfo(Parts& parts, const CallOrigin& origin, Target& target, Then then) {
  if (auto info = target.FreshInfo()) return then(*std::move(info), false);
  SendUnary<v1::GetModelRequest, v1::GetModelResponse>(
      parts.calls, origin, {}, kProbeTimeout,
      [&target](auto... arguments) {
        target.inference->async()->GetModel(std::move(arguments)...);
      },
      [&target, then](const grpc::Status& status, v1::GetModelResponse& model) {
        TargetInfo info{.numerics_id = model.numerics_id()};
        if (status.ok()) target.SetInfo(info);
        then(std::move(info), status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
      });
}

// ---- Unary calls ---------------------------------------------------------------------

template <class Request, class Response>
class UnaryCall final
    : public RoutedCall,
      public ClientCall,
      public std::enable_shared_from_this<UnaryCall<Request, Response>> {
 public:
  using Callback = std::function<void(grpc::Status)>;
  using Method = void (*)(v1::Inference::StubInterface::async_interface&,
                          grpc::ClientContext*, const Request*, Response*, Callback);

  UnaryCall(Parts& parts, CallOrigin origin, Request request, Method method,
            UnaryDone<Response> done)
      : RoutedCall(parts, std::move(origin)),
        request_(std::move(request)),
        method_(method),
        done_(std::move(done)) {}

  void Start(bool with_info, Timeout timeout) {
    with_info_ = with_info;
    timeout_ = timeout;
    SendToNext();
  }
  void Cancel() override {
    cancelled_ = true;
    if (attempt_ != nullptr) attempt_->context.TryCancel();
    done_ = nullptr;
  }

 private:
  void SendTo(Target& target) override {
    if (!with_info_) return Send();
    WithInfo(parts_, origin_, target,
             [self = this->shared_from_this()](const TargetInfo& info, bool silent) {
               if (self->cancelled_) return;
               if (silent && self->PassOver()) return self->SendToNext();
               self->info_ = info;
               self->Send();
             });
  }
  void Send() {
    attempt_ = SendUnary<Request, Response>(
        parts_.calls, origin_, request_, timeout_,
        [this](auto... arguments) {
          method_(*target().inference->async(), std::move(arguments)...);
        },
        [self = this->shared_from_this()](const grpc::Status& status,
                                          Response& response) {
          self->OnAnswer(status, response);
        });
  }
  void OnAnswer(const grpc::Status& status, Response& response) {
    if (ShouldTryNext(status)) return SendToNext();
    attempt_.reset();
    if (cancelled_) return;
    std::exchange(done_, nullptr)(
        FromGrpcStatus(WasNotTaken(status) ? NotTaken() : status), info_, response);
  }

  const Request request_;
  const Method method_;
  UnaryDone<Response> done_;
  bool with_info_ = false;
  Timeout timeout_;
  TargetInfo info_;
  std::shared_ptr<UnaryAttempt<Request, Response>> attempt_;
};

// ---- Generate ------------------------------------------------------------------------

class StreamCall;

// One RPC of Generate. gRPC holds it until OnDone, which posts its end.
class StreamAttempt final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  StreamAttempt(Target& target, const CallOrigin& origin,
                const v1::GenerateRequest& request, std::shared_ptr<StreamCall> owner)
      : post_(origin.post), owner_(std::move(owner)) {
    AddMetadata(origin, context_);
    SetTimeout(TimeoutOf(request), context_);
    target.inference->async()->Generate(&context_, &request, this);
    // Reads are started from the loop, so outside gRPC's own reactions.
    AddHold();
    StartRead(&event_);
    StartCall();
  }

  void Next() {
    reading_ = true;
    StartRead(&event_);
  }
  void Cancel() {
    context_.TryCancel();
    if (!reading_) Release();  // Else the read ends first.
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      post_([this] { HandleEvent(); });
    } else {
      RemoveHold();  // reading_ stays true: the loop does not do it again.
    }
  }
  void OnDone(const grpc::Status& status) override {
    post_([this, status] { HandleEnd(status); });
  }
  void HandleEvent();
  void HandleEnd(const grpc::Status& status);
  void Release() {
    reading_ = true;
    RemoveHold();
  }

  const std::function<void(std::function<void()>)> post_;
  const std::shared_ptr<StreamCall> owner_;
  grpc::ClientContext context_;
  v1::GenerateResponse event_;
  bool reading_ = true;  // Of the loop: no read may be started, nor the hold let go.
};

class StreamCall final : public RoutedCall,
                         public GenerateCall,
                         public std::enable_shared_from_this<StreamCall> {
 public:
  StreamCall(Parts& parts, CallOrigin origin, size_t call, v1::GenerateRequest request,
             std::shared_ptr<GenerateObserver> observer)
      : RoutedCall(parts, std::move(origin)),
        call_(call),
        request_(std::move(request)),
        observer_(std::move(observer)) {
    parts_.calls.Enter();
  }

  void Start() { SendToNext(); }
  void Next() override {
    if (attempt_ != nullptr && !cancelled_) attempt_->Next();
  }
  void Cancel() override {
    if (std::exchange(cancelled_, true)) return;
    observer_.reset();
    if (attempt_ != nullptr) attempt_->Cancel();
  }

  // False: nobody wants it any more.
  bool HandleEvent(v1::GenerateResponse& event) {
    if (cancelled_) return false;
    if (!answered_) Worked();
    answered_ = true;
    // The observer may cancel, and so let itself go.
    const std::shared_ptr<GenerateObserver> observer = observer_;
    observer->OnEvent(call_, info_, event);
    return true;
  }
  void HandleEnd(const grpc::Status& status) {
    attempt_ = nullptr;
    if (!answered_ && ShouldTryNext(status)) return SendToNext();
    if (const auto observer = std::exchange(observer_, nullptr)) {
      const bool not_taken = !answered_ && WasNotTaken(status);
      observer->OnEnd(call_, FromGrpcStatus(not_taken ? NotTaken() : status));
    }
    parts_.calls.Leave();
  }

 private:
  void SendTo(Target& target) override {
    WithInfo(parts_, origin_, target,
             [self = shared_from_this(), &target](TargetInfo info, bool silent) {
               if (silent && self->PassOver()) return self->SendToNext();
               self->info_ = std::move(info);
               self->Send(target);
             });
  }
  void Send(Target& target) {
    if (cancelled_) return parts_.calls.Leave();
    attempt_ = new StreamAttempt(target, origin_, request_, shared_from_this());
  }

  const size_t call_;
  const v1::GenerateRequest request_;
  std::shared_ptr<GenerateObserver> observer_;
  TargetInfo info_;
  bool answered_ = false;
  StreamAttempt* attempt_ = nullptr;  // Ends itself.
};

void StreamAttempt::HandleEvent() {
  reading_ = false;
  if (!owner_->HandleEvent(event_) && !reading_) Release();
}

void StreamAttempt::HandleEnd(const grpc::Status& status) {
  const std::shared_ptr<StreamCall> owner = owner_;
  delete this;
  owner->HandleEnd(status);
}

}  // namespace

// ---- The client ----------------------------------------------------------------------

struct InferenceClient::Impl {
  explicit Impl(size_t count) : parts(count) {}
  Parts parts;

  template <class Request, class Response>
  std::shared_ptr<ClientCall> Start(CallOrigin origin, const Request& request,
                                    typename UnaryCall<Request, Response>::Method method,
                                    UnaryDone<Response> done, bool with_info = false,
                                    Timeout timeout = kQueryTimeout) {
    auto call = std::make_shared<UnaryCall<Request, Response>>(
        parts, std::move(origin), request, method, std::move(done));
    call->Start(with_info, timeout);
    return call;
  }
};

InferenceClient::InferenceClient(const std::vector<GatewayTarget>& targets)
    : impl_(std::make_unique<Impl>(targets.size())) {
  for (const GatewayTarget& target : targets) {
    impl_->parts.targets.push_back(std::make_unique<Target>(target));
  }
}

InferenceClient::~InferenceClient() = default;

std::shared_ptr<GenerateCall> InferenceClient::Generate(
    size_t call, CallOrigin origin, const v1::GenerateRequest& request,
    std::shared_ptr<GenerateObserver> observer) {
  auto stream = std::make_shared<StreamCall>(impl_->parts, std::move(origin), call,
                                             request, std::move(observer));
  stream->Start();
  return stream;
}

std::shared_ptr<ClientCall> InferenceClient::GenerateUnary(
    CallOrigin origin, const v1::GenerateRequest& request,
    UnaryDone<v1::GenerateUnaryResponse> done) {
  return impl_->Start<v1::GenerateRequest, v1::GenerateUnaryResponse>(
      std::move(origin), request,
      [](auto& stub, auto... arguments) { stub.GenerateUnary(std::move(arguments)...); },
      std::move(done), true, TimeoutOf(request));
}

std::shared_ptr<ClientCall> InferenceClient::Tokenize(
    CallOrigin origin, const v1::TokenizeRequest& request,
    UnaryDone<v1::TokenizeResponse> done) {
  return impl_->Start<v1::TokenizeRequest, v1::TokenizeResponse>(
      std::move(origin), request,
      [](auto& stub, auto... arguments) { stub.Tokenize(std::move(arguments)...); },
      std::move(done));
}

std::shared_ptr<ClientCall> InferenceClient::Detokenize(
    CallOrigin origin, const v1::DetokenizeRequest& request,
    UnaryDone<v1::DetokenizeResponse> done) {
  return impl_->Start<v1::DetokenizeRequest, v1::DetokenizeResponse>(
      std::move(origin), request,
      [](auto& stub, auto... arguments) { stub.Detokenize(std::move(arguments)...); },
      std::move(done));
}

std::shared_ptr<ClientCall> InferenceClient::GetModel(
    CallOrigin origin, UnaryDone<v1::GetModelResponse> done) {
  return impl_->Start<v1::GetModelRequest, v1::GetModelResponse>(
      std::move(origin), {},
      [](auto& stub, auto... arguments) { stub.GetModel(std::move(arguments)...); },
      std::move(done));
}

size_t InferenceClient::target_count() const { return impl_->parts.targets.size(); }

namespace {

// A call whose answer is not awaited longer than a probe's.
template <class Attempt>
class ProbeCall final : public ClientCall {
 public:
  ProbeCall(std::shared_ptr<Attempt> attempt, std::shared_ptr<bool> cancelled)
      : attempt_(std::move(attempt)), cancelled_(std::move(cancelled)) {}
  void Cancel() override {
    *cancelled_ = true;
    attempt_->context.TryCancel();
  }

 private:
  const std::shared_ptr<Attempt> attempt_;
  const std::shared_ptr<bool> cancelled_;
};

}  // namespace

std::shared_ptr<ClientCall> InferenceClient::GetLoad(
    size_t target, const CallOrigin& origin, UnaryDone<v1::GetLoadResponse> done) {
  auto cancelled = std::make_shared<bool>(false);
  auto attempt = SendUnary<v1::GetLoadRequest, v1::GetLoadResponse>(
      impl_->parts.calls, origin, {}, kProbeTimeout,
      [stub = impl_->parts.targets[target]->inference->async()](auto... arguments) {
        stub->GetLoad(std::move(arguments)...);
      },
      [cancelled, done = std::move(done)](const grpc::Status& status,
                                          v1::GetLoadResponse& load) {
        if (!*cancelled) done(FromGrpcStatus(status), {}, load);
      });
  return std::make_shared<
      ProbeCall<UnaryAttempt<v1::GetLoadRequest, v1::GetLoadResponse>>>(
      std::move(attempt), std::move(cancelled));
}

std::shared_ptr<ClientCall> InferenceClient::CheckHealth(
    size_t target, const CallOrigin& origin, std::function<void(bool serving)> done) {
  using Request = grpc::health::v1::HealthCheckRequest;
  using Response = grpc::health::v1::HealthCheckResponse;
  auto cancelled = std::make_shared<bool>(false);
  auto attempt = SendUnary<Request, Response>(
      impl_->parts.calls, origin, {}, kProbeTimeout,
      [stub = impl_->parts.targets[target]->health->async()](auto... arguments) {
        stub->Check(std::move(arguments)...);
      },
      [cancelled, done = std::move(done)](const grpc::Status& status,
                                          Response& response) {
        if (*cancelled) return;
        done(status.ok() && response.status() == Response::SERVING);
      });
  return std::make_shared<ProbeCall<UnaryAttempt<Request, Response>>>(
      std::move(attempt), std::move(cancelled));
}

ActivityCount& InferenceClient::calls() { return impl_->parts.calls; }

grpc::ChannelArguments TargetChannelArguments() {
  grpc::ChannelArguments arguments;
  // Log-probabilities of a long answer are large; what the server sends is bounded by
  // what the client asked for.
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt("grpc.max_reconnect_backoff_ms", 2000);
  return arguments;
}

std::shared_ptr<grpc::Channel> MakeTargetChannel(const std::string& address,
                                                 Duration ping) {
  const auto ms = static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(ping).count());
  grpc::ChannelArguments arguments = TargetChannelArguments();
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ms);
  // However long the server computes before it says something.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace renga
