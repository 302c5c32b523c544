// FakeInference: the native API without a model, on an in-process server and on a port.
//
// Each generation plays a script: messages one after the other, each only when the last
// has been taken, and an end.
//
// Thread safety: `script` and the other fields are set before the first call; counts()
// and last_*() may be called from any thread.

#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "renga/v1/inference.grpc.pb.h"

namespace renga {

struct GenerateScript {
  std::vector<v1::GenerateResponse> events;
  grpc::Status end = grpc::Status::OK;
  bool endless = false;  // The last event again and again.
  bool silent = false;   // After the events nothing, until the call is cancelled.
};

inline v1::GenerateResponse StartedEvent(int64_t prompt_tokens = 7, int64_t cached = 0) {
  v1::GenerateResponse event;
  event.mutable_started()->set_model("fake");
  event.mutable_started()->set_request_id("1");
  event.mutable_started()->set_prompt_tokens(prompt_tokens);
  event.mutable_started()->set_cached_tokens(cached);
  return event;
}

inline v1::GenerateResponse ChunkEvent(const std::string& text, int32_t choice = 0) {
  v1::GenerateResponse event;
  event.mutable_chunk()->set_text(text);
  event.mutable_chunk()->set_choice(choice);
  event.mutable_chunk()->add_token_ids(1);
  return event;
}

inline v1::GenerateResponse ChoiceFinishedEvent(int32_t choice, v1::FinishReason reason) {
  v1::GenerateResponse event;
  event.mutable_choice_finished()->set_choice(choice);
  event.mutable_choice_finished()->set_finish_reason(reason);
  event.mutable_choice_finished()->set_stop_cause(v1::STOP_CAUSE_MAX_TOKENS);
  return event;
}

inline v1::GenerateResponse FinishedEvent(int64_t completion_tokens,
                                          int64_t prompt_tokens = 7,
                                          int64_t cached_tokens = 0) {
  v1::GenerateResponse event;
  v1::Finished& finished = *event.mutable_finished();
  finished.set_finish_reason(v1::FINISH_REASON_STOP);
  finished.set_stop_cause(v1::STOP_CAUSE_END_TOKEN);
  finished.mutable_usage()->set_prompt_tokens(prompt_tokens);
  finished.mutable_usage()->set_cached_tokens(cached_tokens);
  finished.mutable_usage()->set_completion_tokens(completion_tokens);
  finished.mutable_timings()->set_queue_us(1500);
  finished.mutable_timings()->set_prefill_us(2000);
  return event;
}

// An answer of these pieces.
inline GenerateScript AnswerOf(const std::vector<std::string>& pieces) {
  GenerateScript script;
  script.events.push_back(StartedEvent());
  for (const std::string& piece : pieces) script.events.push_back(ChunkEvent(piece));
  script.events.push_back(FinishedEvent(static_cast<int64_t>(pieces.size())));
  return script;
}

class FakeInference final : public v1::Inference::CallbackService {
 public:
  struct Counts {
    int64_t started = 0;
    int64_t ended = 0;
    int64_t cancelled = 0;
    int64_t written = 0;  // Messages of streams.
    int64_t running() const { return started - ended; }
  };

  std::function<GenerateScript(const v1::GenerateRequest&)> script =
      [](const v1::GenerateRequest&) {
        return AnswerOf({"Hello", " world"});
      };
  std::string model_name = "fake";
  std::string numerics_id = "n1";
  std::string wanted_key;  // Calls without it are refused.
  grpc::Status tokenize_status = grpc::Status::OK;
  grpc::Status detokenize_status = grpc::Status::OK;
  grpc::Status model_status = grpc::Status::OK;

  Counts counts() const {
    MutexLock lock(mutex_);
    return counts_;
  }
  v1::GenerateRequest last_request() const {
    MutexLock lock(mutex_);
    return last_request_;
  }
  // Of the last generation's call; the far future without one.
  std::chrono::system_clock::time_point last_deadline() const {
    MutexLock lock(mutex_);
    return last_deadline_;
  }
  std::map<std::string, std::string> last_metadata() const {
    MutexLock lock(mutex_);
    return last_metadata_;
  }
  // Waits until `predicate` holds of the counts; for ever, as ctest has a time limit.
  template <class Predicate>
  Counts WaitFor(Predicate predicate) {
    MutexLock lock(mutex_);
    while (!predicate(counts_)) changed_.Wait(mutex_);
    return counts_;
  }

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override {
    return new Stream(*this, Begin(*context, *request));
  }

  grpc::ServerUnaryReactor* GenerateUnary(grpc::CallbackServerContext* context,
                                          const v1::GenerateRequest* request,
                                          v1::GenerateUnaryResponse* response) override {
    const GenerateScript what = Begin(*context, *request);
    if (what.silent) return new SilentUnary(*this);
    for (const v1::GenerateResponse& event : what.events) Fold(event, *response);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    Ended(false);
    reactor->Finish(what.end);
    return reactor;
  }

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override {
    for (const char c : request->text()) response->add_token_ids(c);
    return Answer(*context, tokenize_status);
  }
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override {
    for (const int32_t id : request->token_ids()) {
      *response->mutable_text() += static_cast<char>(id);
    }
    return Answer(*context, detokenize_status);
  }
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest*,
                                     v1::GetModelResponse* response) override {
    response->set_name(model_name);
    response->set_context_length(100);
    response->set_numerics_id(numerics_id);
    if (!model_status.ok()) return Answer(*context, model_status);
    return Answer(*context, CheckKey(*context));
  }
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context,
                                    const v1::GetLoadRequest*,
                                    v1::GetLoadResponse* response) override {
    response->set_ready(true);
    response->set_running(3);
    response->set_waiting(2);
    response->set_kv_pages_total(100);
    response->set_kv_pages_free(60);
    response->set_busy_share(0.5);
    response->set_predicted_first_token_us(12500);
    return Answer(*context, CheckKey(*context));
  }

 private:
  class Stream final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
   public:
    Stream(FakeInference& fake, GenerateScript script)
        : fake_(fake), script_(std::move(script)) {
      Go();
    }

   private:
    void Go() {
      MutexLock lock(mutex_);
      if (finished_) return;
      if (cancelled_) return End(grpc::Status::CANCELLED);
      if (next_ < script_.events.size()) return StartWrite(&script_.events[next_++]);
      if (script_.endless) return StartWrite(&script_.events.back());
      if (!script_.silent) End(script_.end);
    }
    void End(const grpc::Status& status) RENGA_REQUIRES(mutex_) {
      finished_ = true;
      Finish(status);
    }
    void OnWriteDone(bool ok) override {
      if (ok) fake_.Wrote();
      if (!ok) {
        MutexLock lock(mutex_);
        cancelled_ = true;
      }
      Go();
    }
    void OnCancel() override {
      MutexLock lock(mutex_);
      cancelled_ = true;
      const bool idle = script_.silent && next_ == script_.events.size();
      if (idle && !finished_) End(grpc::Status::CANCELLED);
    }
    void OnDone() override {
      bool cancelled = false;
      {
        MutexLock lock(mutex_);
        cancelled = cancelled_;
      }
      fake_.Ended(cancelled);
      delete this;
    }

    FakeInference& fake_;
    const GenerateScript script_;
    Mutex mutex_;
    size_t next_ RENGA_GUARDED_BY(mutex_) = 0;
    bool cancelled_ RENGA_GUARDED_BY(mutex_) = false;
    bool finished_ RENGA_GUARDED_BY(mutex_) = false;
  };

  // Answers nothing until it is cancelled.
  class SilentUnary final : public grpc::ServerUnaryReactor {
   public:
    explicit SilentUnary(FakeInference& fake) : fake_(fake) {}

   private:
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override {
      fake_.Ended(true);
      delete this;
    }
    FakeInference& fake_;
  };

  static grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context,
                                          const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  grpc::Status CheckKey(const grpc::CallbackServerContext& context) const {
    if (wanted_key.empty()) return grpc::Status::OK;
    const auto found = context.client_metadata().find("authorization");
    if (found != context.client_metadata().end() &&
        found->second == "Bearer " + wanted_key) {
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::UNAUTHENTICATED, "a key is required"};
  }

  GenerateScript Begin(const grpc::CallbackServerContext& context,
                       const v1::GenerateRequest& request) {
    {
      MutexLock lock(mutex_);
      ++counts_.started;
      last_request_ = request;
      last_deadline_ = context.deadline();
      last_metadata_.clear();
      for (const auto& [key, value] : context.client_metadata()) {
        last_metadata_[std::string(key.data(), key.size())] =
            std::string(value.data(), value.size());
      }
      changed_.NotifyAll();
    }
    if (const grpc::Status status = CheckKey(context); !status.ok()) {
      return {.events = {}, .end = status};
    }
    return script(request);
  }

  static void Fold(const v1::GenerateResponse& event,
                   v1::GenerateUnaryResponse& response) {
    if (event.has_started()) *response.mutable_started() = event.started();
    if (event.has_finished()) *response.mutable_finished() = event.finished();
    if (!event.has_chunk()) return;
    const v1::Chunk& chunk = event.chunk();
    if (chunk.choice() == 0) {
      *response.mutable_text() += chunk.text();
      response.mutable_logprobs()->MergeFrom(chunk.logprobs());
      return;
    }
    while (response.more_choices_size() < chunk.choice()) {
      response.add_more_choices()->set_choice(response.more_choices_size());
    }
    v1::Choice& choice = *response.mutable_more_choices(chunk.choice() - 1);
    *choice.mutable_text() += chunk.text();
    choice.mutable_logprobs()->MergeFrom(chunk.logprobs());
  }

  void Wrote() {
    MutexLock lock(mutex_);
    ++counts_.written;
    changed_.NotifyAll();
  }
  void Ended(bool cancelled) {
    MutexLock lock(mutex_);
    ++counts_.ended;
    if (cancelled) ++counts_.cancelled;
    changed_.NotifyAll();
  }

  mutable Mutex mutex_;
  CondVar changed_;
  Counts counts_ RENGA_GUARDED_BY(mutex_);
  v1::GenerateRequest last_request_ RENGA_GUARDED_BY(mutex_);
  std::chrono::system_clock::time_point last_deadline_ RENGA_GUARDED_BY(mutex_);
  std::map<std::string, std::string> last_metadata_ RENGA_GUARDED_BY(mutex_);
};

// The fake behind a server; its clients come over in_process() or address().
class FakeServer {
 public:
  explicit FakeServer(FakeInference& inference) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&inference);
    server_ = builder.BuildAndStart();
  }
  ~FakeServer() { server_->Shutdown(std::chrono::system_clock::now()); }

  void SetServing(bool serving) {
    server_->GetHealthCheckService()->SetServingStatus(serving);
  }
  std::shared_ptr<grpc::Channel> InProcess(const grpc::ChannelArguments& arguments) {
    return server_->InProcessChannel(arguments);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace renga
