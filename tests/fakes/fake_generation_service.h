// FakeGenerationService: an engine without a model. One thread gives every choice of
// every running request one scripted token after the other and obeys verdicts, cancels,
// resumes and deadlines as the real one does. Log-probabilities and the prompt come back
// if the request wants them.
//
// Thread safety: every method may be called from any thread; `script`, `load` and `info`
// are set before the first request.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "renga/generation_service.h"

namespace renga {

class FakeGenerationService final : public GenerationService {
 public:
  static constexpr int64_t kEndless = int64_t{1} << 60;

  static constexpr int64_t kPromptTokens = 7;

  // What happens to one request.
  struct Script {
    Status refusal{};          // Not OK: OnDone with it, in the caller's thread.
    int64_t tokens = 5;        // Then the answer is complete.
    std::string text = "tok";  // Of each token; its index follows.
    bool silent = false;       // No token ever: waits for a cancel or its deadline.
    std::string stop_text{};   // Of the completion.
    // Of each choice where they differ; those beyond the list have `tokens`.
    std::vector<int64_t> choice_tokens{};
    int64_t cached_tokens = 0;  // Of the kPromptTokens.
    Status failure{};           // Not OK: instead of the completion.

    int64_t TokensOf(size_t choice) const {
      return choice < choice_tokens.size() ? choice_tokens[choice] : tokens;
    }
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
  std::function<void()> on_tokenize = [] {};  // What Tokenize does first.
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

  // Of the i-th token of a choice (or of the prompt), with `top` alternatives.
  static TokenLogprob Logprob(int64_t i, int32_t top) {
    TokenLogprob logprob{.token = static_cast<TokenId>(i),
                         .logprob = -0.5f * static_cast<float>(i + 1)};
    for (int32_t t = 0; t < top; ++t) {
      logprob.top.push_back({.token = static_cast<TokenId>(i + t),
                             .logprob = logprob.logprob - static_cast<float>(t)});
    }
    return logprob;
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
            .script = what,
            .sink = &sink,
            .deadline = request.deadline,
            .choices = std::vector<Choice>(static_cast<size_t>(request.n)),
            .logprobs = request.logprobs,
            .prompt_logprobs = request.prompt_logprobs,
            .echo = request.echo};
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
    on_tokenize();
    const auto* text = std::get_if<std::string>(&prompt);
    if (text == nullptr) return InvalidArgument("chat", "the fake has no template");
    return std::vector<TokenId>(text->begin(), text->end());
  }
  StatusOr<std::string> Detokenize(const std::vector<TokenId>& ids) override {
    return std::string(ids.begin(), ids.end());
  }
  // "tok<id>".
  std::string_view TokenBytes(TokenId id) override {
    return pieces_.at(static_cast<size_t>(id));
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
  struct Choice {
    int64_t given = 0;
    bool ended = false;
    bool stopped = false;  // By its sink.
  };
  struct Running {
    Script script;
    TokenSink* sink = nullptr;
    std::optional<TimePoint> deadline{};
    std::vector<Choice> choices{};
    std::optional<int32_t> logprobs{};
    std::optional<int32_t> prompt_logprobs{};
    bool echo = false;
    bool started = false;
    bool paused = false;
    Status end{};  // Not OK: ends so at the next step.
  };
  struct Mail {
    RequestId id{};
    bool cancel = false;
  };

  static std::vector<std::string> Pieces(int64_t count) {
    std::vector<std::string> pieces;
    for (int64_t i = 0; i < count; ++i) pieces.push_back("tok" + std::to_string(i));
    return pieces;
  }

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
    if (!request.end.ok()) return End(id, request, request.end);
    if (!std::exchange(request.started, true)) Start(request);
    bool all_ended = true;
    for (size_t i = 0; i < request.choices.size(); ++i) {
      Choice& choice = request.choices[i];
      if (!choice.ended) StepChoice(static_cast<int32_t>(i), request);
      all_ended = all_ended && choice.ended;
    }
    if (all_ended) End(id, request, request.script.failure);
  }

  void Start(Running& request) {
    std::vector<TokenId> prompt;
    std::string text;
    for (TokenId id = 0; request.echo && id < kPromptTokens; ++id) {
      prompt.push_back(id);
      text += TokenBytes(id);
    }
    std::vector<TokenLogprob> logprobs;
    for (int64_t i = 1; request.prompt_logprobs && i < kPromptTokens; ++i) {
      logprobs.push_back(Logprob(i, *request.prompt_logprobs));
    }
    const int64_t cached = request.script.cached_tokens;
    request.sink->OnStart(
        {.prompt_tokens = kPromptTokens,
         .cached_tokens = cached,
         .kv_source = cached > 0 ? KvSource::kPrefixCache : KvSource::kComputed,
         .queue = std::chrono::microseconds(3),
         .prompt = prompt,
         .prompt_text = text,
         .prompt_logprobs = logprobs});
  }

  // One token of one choice, or its end.
  void StepChoice(int32_t index, Running& request) {
    Choice& choice = request.choices[static_cast<size_t>(index)];
    if (choice.stopped ||
        choice.given >= request.script.TokensOf(static_cast<size_t>(index))) {
      choice.ended = true;
      if (!request.script.failure.ok()) return;
      return request.sink->OnChoiceEnd(
          {.choice = index,
           .finish_reason = FinishReason::kStop,
           .stop_cause = choice.stopped ? StopCause::kNone : StopCause::kEndToken,
           .stop_text = request.script.stop_text,
           .completion_tokens = choice.given});
    }
    const TokenId token = static_cast<TokenId>(choice.given);
    const std::string text = request.script.text + std::to_string(choice.given);
    std::vector<TokenLogprob> logprobs;
    if (request.logprobs) logprobs.push_back(Logprob(choice.given, *request.logprobs));
    ++choice.given;
    const SinkVerdict verdict = request.sink->OnToken({.choice = index,
                                                       .tokens = std::span(&token, 1),
                                                       .text = text,
                                                       .logprobs = logprobs});
    choice.stopped = verdict == SinkVerdict::kStop;
    MutexLock lock(mutex_);
    ++counts_.tokens;
    if (verdict == SinkVerdict::kPause && !std::exchange(request.paused, true)) {
      ++counts_.pauses;
    }
    counted_.NotifyAll();
  }

  void End(RequestId id, const Running& request, const Status& status) {
    Completion completion;
    completion.status = status;
    completion.finish_reason = FinishReason::kStop;
    completion.stop_cause = StopCause::kEndToken;
    completion.stop_text = request.script.stop_text;
    completion.usage = {.prompt_tokens = kPromptTokens,
                        .cached_tokens = request.script.cached_tokens};
    for (const Choice& choice : request.choices) {
      completion.usage.completion_tokens += choice.given;
    }
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
  const std::vector<std::string> pieces_ = Pieces(info.vocab_size);
  std::thread engine_;  // Last: it reads the others.
};

}  // namespace renga
