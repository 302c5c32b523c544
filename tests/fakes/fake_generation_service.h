// FakeGenerationService: an engine without a model. One thread gives every running
// request one scripted token after the other and obeys verdicts, cancels, resumes and
// deadlines as the real one does.
//
// Thread safety: every method may be called from any thread; `script` and `info` are set
// before the first request.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "renga/generation_service.h"

namespace renga {

class FakeGenerationService final : public GenerationService {
 public:
  static constexpr int64_t kEndless = int64_t{1} << 60;

  // What happens to one request.
  struct Script {
    Status refusal{};          // Not OK: OnDone with it, in the caller's thread.
    int64_t tokens = 5;        // Then the answer is complete.
    std::string text = "tok";  // Of each token; its index follows.
    bool silent = false;       // No token ever: waits for a cancel or its deadline.
    std::string stop_text{};   // Of the completion.
  };

  struct Counts {
    int64_t started = 0;  // Generate called.
    int64_t done = 0;     // OnDone called.
    int64_t running = 0;
    int64_t cancels = 0;  // Cancel of a running request.
    int64_t pauses = 0;
    int64_t resumes = 0;  // Resume of a paused request.
    int64_t tokens = 0;   // Given out.
    bool operator==(const Counts&) const = default;
  };

  FakeGenerationService() : engine_([this] { Run(); }) {}
  ~FakeGenerationService() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    engine_.join();
  }

  std::function<Script(const GenerateRequest&)> script = [](const GenerateRequest&) {
    return Script{};
  };
  LoadInfo load;
  ModelInfo info{.name = "fake",
                 .architecture = "none",
                 .context_length = 100,
                 .vocab_size = 1000,
                 .has_chat_template = true,
                 .backend = "cpu/fake",
                 .numerics_id = "n1",
                 .end_token_ids = {2},
                 .bos_token_id = 1};

  // The answer's text with `tokens` tokens.
  static std::string Text(const Script& script, int64_t tokens) {
    std::string text;
    for (int64_t i = 0; i < tokens; ++i) text += script.text + std::to_string(i);
    return text;
  }

  RequestId NewRequestId() override {
    MutexLock lock(mutex_);
    return RequestId{++last_id_};
  }

  void Generate(GenerateRequest request, TokenSink& sink) override {
    const Script what = script(request);
    {
      MutexLock lock(mutex_);
      ++counts_.started;
      last_request_ = request;
      if (what.refusal.ok()) {
        ++counts_.running;
        counted_.NotifyAll();
        running_[request.id] = {
            .script = what, .sink = &sink, .deadline = request.deadline};
        changed_.NotifyAll();
        return;
      }
      ++counts_.done;
    }
    Completion completion;
    completion.status = what.refusal;
    sink.OnDone(completion);
  }

  void Resume(RequestId id) override {
    MutexLock lock(mutex_);
    mail_.push_back({id, false});
    changed_.NotifyAll();
  }
  void Cancel(RequestId id) override {
    MutexLock lock(mutex_);
    mail_.push_back({id, true});
    changed_.NotifyAll();
  }

  StatusOr<std::vector<TokenId>> Tokenize(const PromptInput& prompt) override {
    const auto* text = std::get_if<std::string>(&prompt);
    if (text == nullptr) return InvalidArgument("chat", "the fake has no template");
    return std::vector<TokenId>(text->begin(), text->end());
  }
  StatusOr<std::string> Detokenize(const std::vector<TokenId>& ids) override {
    return std::string(ids.begin(), ids.end());
  }
  ModelInfo GetModel() override { return info; }
  LoadInfo GetLoad() override { return load; }
  bool Ready() override { return true; }

  Counts counts() const {
    MutexLock lock(mutex_);
    return counts_;
  }
  GenerateRequest last_request() const {
    MutexLock lock(mutex_);
    return last_request_;
  }
  // Waits until `predicate` holds of the counts; for ever, as ctest has a time limit.
  template <class Predicate>
  Counts WaitFor(Predicate predicate) {
    MutexLock lock(mutex_);
    while (!predicate(counts_)) counted_.Wait(mutex_);
    return counts_;
  }

 private:
  struct Running {
    Script script;
    TokenSink* sink = nullptr;
    std::optional<TimePoint> deadline{};
    int64_t given = 0;
    bool paused = false;
    Status end{};  // Not OK: ends so at the next step.
  };
  struct Mail {
    RequestId id{};
    bool cancel = false;
  };

  static bool CanStep(const Running& request) {
    return !request.end.ok() || (!request.paused && !request.script.silent);
  }

  bool Expire() RENGA_REQUIRES(mutex_) {
    bool any = false;
    for (auto& [id, request] : running_) {
      if (request.deadline && std::chrono::steady_clock::now() >= *request.deadline) {
        request.end = DeadlineExceeded("the deadline passed");
      }
      any = any || CanStep(request);
    }
    return any;
  }

  void ReadMail() RENGA_REQUIRES(mutex_) {
    for (const Mail& mail : mail_) {
      const auto found = running_.find(mail.id);
      if (found == running_.end()) continue;
      if (mail.cancel) {
        if (found->second.end.ok()) ++counts_.cancels;
        found->second.end = Cancelled("cancelled");
      } else if (std::exchange(found->second.paused, false)) {
        ++counts_.resumes;
      }
    }
    mail_.clear();
  }

  void Run() {
    for (;;) {
      std::vector<std::pair<RequestId, Running*>> step;
      {
        MutexLock lock(mutex_);
        ReadMail();
        while (!stopping_ && !Expire() && mail_.empty()) {
          changed_.WaitUntil(
              mutex_, std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
        }
        if (stopping_) return;
        for (auto& [id, request] : running_) {
          if (CanStep(request)) step.emplace_back(id, &request);
        }
      }
      // The lock is not held in calls of the sinks; only this thread erases.
      for (auto& [id, request] : step) Step(id, *request);
    }
  }

  void Step(RequestId id, Running& request) {
    if (!request.end.ok() || request.given == request.script.tokens) {
      Completion completion;
      completion.status = request.end;
      completion.finish_reason = FinishReason::kStop;
      completion.stop_cause = StopCause::kEndToken;
      completion.stop_text = request.script.stop_text;
      completion.usage = {.prompt_tokens = 7, .completion_tokens = request.given};
      completion.timings.queue = std::chrono::microseconds(3);
      TokenSink* sink = request.sink;
      {
        MutexLock lock(mutex_);
        running_.erase(id);
      }
      sink->OnDone(completion);
      MutexLock lock(mutex_);
      --counts_.running;
      ++counts_.done;
      counted_.NotifyAll();
      return;
    }
    if (request.given == 0) {
      request.sink->OnStart({.prompt_tokens = 7, .queue = std::chrono::microseconds(3)});
    }
    const TokenId token = static_cast<TokenId>(request.given);
    const std::string text = request.script.text + std::to_string(request.given);
    ++request.given;
    const SinkVerdict verdict =
        request.sink->OnToken({.tokens = std::span(&token, 1), .text = text});
    MutexLock lock(mutex_);
    ++counts_.tokens;
    if (verdict == SinkVerdict::kPause) {
      request.paused = true;
      ++counts_.pauses;
    }
    counted_.NotifyAll();
  }

  mutable Mutex mutex_;
  CondVar changed_;
  CondVar counted_;
  uint64_t last_id_ RENGA_GUARDED_BY(mutex_) = 0;
  std::map<RequestId, Running> running_ RENGA_GUARDED_BY(mutex_);
  std::vector<Mail> mail_ RENGA_GUARDED_BY(mutex_);
  GenerateRequest last_request_ RENGA_GUARDED_BY(mutex_);
  Counts counts_ RENGA_GUARDED_BY(mutex_);
  bool stopping_ RENGA_GUARDED_BY(mutex_) = false;
  std::thread engine_;  // Last: it reads the others.
};

}  // namespace renga
