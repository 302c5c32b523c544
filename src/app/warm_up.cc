#include "app/warm_up.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "renga/backend.h"

namespace renga {
namespace {

// Prompt lengths of the requests that run together; 607 tokens in all. The longest comes
// first: what it touches, the others find touched.
const std::vector<std::vector<int64_t>>& Rounds() {
  static const std::vector<std::vector<int64_t>> rounds = {
      {256}, {1}, {64}, {16}, {2, 4, 8, 32, 96, 128}};
  return rounds;
}
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

// The log's line: each value a list, in the order in which the requests were made.
struct Times {
  void Add(const Completion& done) {
    ++requests;
    const auto append = [](std::string& list, const std::string& value) {
      list += (list.empty() ? "" : ",") + value;
    };
    append(prompt_tokens, std::to_string(done.usage.prompt_tokens));
    append(prefill_ms, Milliseconds(done.timings.prefill));
    append(decode_ms, Milliseconds(done.timings.decode));
  }
  void LogLine() const {
    LogInfo("warm_up", {{"requests", requests},
                        {"prompt_tokens", std::string_view(prompt_tokens)},
                        {"prefill_ms", std::string_view(prefill_ms)},
                        {"decode_ms", std::string_view(decode_ms)}});
  }

  int64_t requests = 0;
  std::string prompt_tokens;
  std::string prefill_ms;
  std::string decode_ms;
};

// `wanted` prompt tokens, or as many as there is `room` for.
GenerateRequest MakeRequest(GenerationServiceImpl& service, int64_t vocab_size,
                            int64_t room, int64_t wanted) {
  const int64_t tokens = std::clamp<int64_t>(room - kAnswerTokens, 1, wanted);
  GenerateRequest request;
  request.id = service.NewRequestId();
  // Both ways to draw a token are warmed.
  const bool greedy = tokens % 3 == 0 || tokens == 1;
  request.sampling.temperature = greedy ? 0.0f : 1.0f;
  request.sampling.top_p = 0.9f;
  request.sampling.seed = 1;
  request.max_tokens = std::min(kAnswerTokens, room - tokens);
  request.ignore_end_token = true;
  std::vector<TokenId> prompt;
  for (int64_t i = 0; i < tokens; ++i) {
    prompt.push_back(static_cast<TokenId>((7919 * i + 11) % vocab_size));
  }
  request.prompt = std::move(prompt);
  return request;
}

// The template and the vocabulary. Whether a template likes this chat is not asked here.
void WarmText(GenerationServiceImpl& service, const ModelInfo& model) {
  if (model.has_chat_template) {
    const ChatInput chat = {.messages = {{.role = "user", .content = "Good morning!"}}};
    (void)service.Tokenize(chat);
  }
  (void)service.Tokenize(std::string("The quick brown fox jumps over 13 lazy dogs."));
}

// Runs them together; those for which a small queue has no room follow one by one.
Status RunRound(GenerationServiceImpl& service, int64_t vocab_size, int64_t room,
                const std::vector<int64_t>& lengths, Times& times) {
  std::deque<WaitingSink> sinks(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    service.GenerateForWarmUp(MakeRequest(service, vocab_size, room, lengths[i]),
                              sinks[i]);
  }
  Status failure;
  std::vector<int64_t> refused;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const Completion done = sinks[i].Wait();  // Of all: they refer to the sinks.
    if (done.status.code() == StatusCode::kResourceExhausted && lengths.size() > 1) {
      refused.push_back(lengths[i]);
      continue;
    }
    if (failure.ok()) failure = done.status;
    times.Add(done);
  }
  for (const int64_t length : refused) {
    if (failure.ok()) failure = RunRound(service, vocab_size, room, {length}, times);
  }
  return failure;
}

}  // namespace

Status WarmUp(GenerationServiceImpl& service, int64_t kv_pages,
              const std::function<bool()>& cancelled) {
  const ModelInfo model = service.GetModel();
  const int64_t room = std::min(model.context_length, kv_pages * kPageTokens);
  WarmText(service, model);
  Times times;
  for (const std::vector<int64_t>& lengths : Rounds()) {
    if (cancelled()) return OkStatus();
    RENGA_RETURN_IF_ERROR(RunRound(service, model.vocab_size, room, lengths, times));
  }
  times.LogLine();
  return OkStatus();
}

}  // namespace renga
