#include "app/warm_up.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "renga/backend.h"

namespace renga {
namespace {

constexpr std::array kPromptTokens = {1, 2, 4, 8, 16, 32, 64, 96, 128, 256};  // 607.
constexpr int64_t kAnswerTokens = 4;

class WaitingSink final : public TokenSink {
 public:
  SinkVerdict OnToken(const TokenChunk& /*chunk*/) override {
    return SinkVerdict::kContinue;
  }
  void OnDone(const Completion& completion) override RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    completion_ = completion;
    done_ = true;
    changed_.NotifyAll();  // Under the lock: the waiter destroys this once it is free.
  }
  Completion Wait() RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!done_) changed_.Wait(mutex_);
    return completion_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool done_ RENGA_GUARDED_BY(mutex_) = false;
  Completion completion_ RENGA_GUARDED_BY(mutex_);
};

std::string Milliseconds(Duration duration) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  return std::to_string(us / 1000) + '.' + std::to_string(us % 1000 / 100);
}

}  // namespace

Status WarmUp(GenerationServiceImpl& service, int64_t kv_pages,
              const std::function<bool()>& cancelled) {
  const ModelInfo model = service.GetModel();
  const int64_t room = std::min(model.context_length, kv_pages * kPageTokens);
  for (const int64_t wanted : kPromptTokens) {
    if (cancelled()) return OkStatus();
    const int64_t tokens = std::clamp<int64_t>(room - kAnswerTokens, 1, wanted);
    GenerateRequest request;
    request.id = service.NewRequestId();
    request.sampling.temperature = 0.0f;
    request.max_tokens = kAnswerTokens;
    request.ignore_end_token = true;
    std::vector<TokenId> prompt;
    for (int64_t i = 0; i < tokens; ++i) {
      prompt.push_back(static_cast<TokenId>((7919 * i + 11) % model.vocab_size));
    }
    request.prompt = std::move(prompt);
    WaitingSink sink;
    service.GenerateForWarmUp(std::move(request), sink);
    const Completion done = sink.Wait();
    RENGA_RETURN_IF_ERROR(done.status);
    LogInfo("warm_up", {{"prompt_tokens", tokens},
                        {"prefill_ms", Milliseconds(done.timings.prefill)},
                        {"decode_ms", Milliseconds(done.timings.decode)}});
  }
  return OkStatus();
}

}  // namespace renga
