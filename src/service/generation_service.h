// GenerationServiceImpl: the one path into the engine: validate, look whether there is
// room and time, render, encode, check that it can ever fit, look again, submit.
//
// The caller's thread does the cheap checks, so that a refusal never waits for other
// requests' prompts; rendering and encoding run on PromptPool; then the request is the
// engine's. Whoever ends it, its sink gets one OnDone.
//
// Room: of the wait queue. Time: a request is refused when its first token is predicted
// after its deadline or the server's limit. What the prefix cache holds is known to the
// engine alone, so where it may hold the prompt the prediction here leaves that out, and
// the engine, which looks again with the exact length, has the last word.
//
// Requests share cached keys and values if both their tenants and their salts are equal,
// whether or not keys are needed to name a tenant: nobody's timings tell another tenant
// what he has sent.
//
// Thread safety: every method may be called from any thread. Destroy it after the engine
// has stopped and after the transport has stopped calling.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "batching/engine_snapshot.h"
#include "batching/wait_queue.h"
#include "metrics/server_metrics.h"
#include "renga/clock.h"
#include "renga/generation_service.h"
#include "renga/tokenizer.h"
#include "service/counting_sink.h"
#include "service/prompt_pool.h"
#include "text/chat_template.h"

namespace renga {

struct GenerationOptions {
  int64_t kv_pages = 0;  // Of the pool; a prompt that needs more is refused.
  Duration stall = std::chrono::seconds(2);  // See Ready.
  PromptPool::Limits pool{};
  WaitQueue::Limits queue{};     // Those of the queue: refused before the work.
  int32_t max_sequences = 64;    // Running at the same time; a larger `n` is refused.
  Duration window{};             // A batch waits so long while the engine is busy.
  Duration first_token_limit{};  // 0: none but the request's own deadline.
  bool prefix_cache = true;
};

// What the service works with; all of it outlives the service.
struct GenerationParts {
  const Tokenizer& tokenizer;
  const ChatTemplate* chat_template = nullptr;  // nullptr: chat is refused.
  // Why there is none, for clients: "the model has none", "... does not parse".
  std::string no_template_reason;
  WaitQueue& queue;
  const SnapshotBoard& board;
  ServerMetrics& metrics;
  const Clock& clock;
};

class GenerationServiceImpl final : public GenerationService {
 public:
  GenerationServiceImpl(const GenerationOptions& options, ModelInfo model,
                        const GenerationParts& parts);
  ~GenerationServiceImpl() override;

  RequestId NewRequestId() override;
  void Generate(GenerateRequest request, TokenSink& sink) override;
  void Resume(RequestId id) override;
  void Cancel(RequestId id) override;
  StatusOr<std::vector<TokenId>> Tokenize(const PromptInput& prompt) override;
  StatusOr<std::string> Detokenize(const std::vector<TokenId>& ids) override;
  std::string_view TokenBytes(TokenId id) override;
  ModelInfo GetModel() override;
  LoadInfo GetLoad() override;
  // SetReady(true), not draining, and the engine made a step or was idle within `stall`.
  bool Ready() override;

  // Until SetReady(true) every Generate is refused with UNAVAILABLE...
  void SetReady(bool ready);
  // ... but not this one. It is the same, but never refused by prediction, and leaves
  // neither traces in the metrics of requests nor pages in the prefix cache.
  void GenerateForWarmUp(GenerateRequest request, TokenSink& sink);
  // From now on every Generate is refused; what was accepted goes on.
  void StartDrain();
  // Waits until everything accepted is the engine's; false if some is not at `deadline`.
  bool WaitSubmitted(TimePoint deadline);

 private:
  class Job;

  void Start(GenerateRequest request, std::unique_ptr<CountingSink> sink);
  // All that can be said against it without its tokens.
  Status CheckRequest(const GenerateRequest& request) const;
  // OK, or why there is no room in the queue, or no time for so many tokens to compute.
  Status CheckRoom() const;
  int64_t LikelyUncached(const EngineRequest& request) const;
  Status CheckTime(TimePoint arrival, const std::optional<TimePoint>& deadline,
                   int64_t uncached_tokens) const;
  // From now to the first token of a prompt that joins what waits.
  Duration PredictFirst(int64_t uncached_tokens) const;
  // The ids of a prompt. REQUIRES: CheckPrompt said yes.
  StatusOr<std::vector<TokenId>> Encode(const PromptInput& prompt) const;
  Status CheckFits(int64_t prompt_tokens) const;
  // Either the engine has the request afterwards, or `sink`, its last one, was told.
  void Submit(EngineRequest& request, CountingSink& sink) RENGA_EXCLUDES(mutex_);
  Status QueueFull() const;
  Status PoolFull() const;
  uint64_t FreshSeed() RENGA_EXCLUDES(mutex_);

  const GenerationOptions options_;
  const ModelInfo model_;
  const GenerationParts parts_;
  int64_t max_token_bytes_ = 1;  // Of the whole vocabulary.
  std::atomic<uint64_t> last_id_{0};
  std::atomic<bool> ready_{false};
  std::atomic<bool> draining_{false};

  Mutex mutex_;
  uint64_t seed_state_ RENGA_GUARDED_BY(mutex_) = 0;
  // When a request last met an engine with nothing to do.
  TimePoint work_since_ RENGA_GUARDED_BY(mutex_){};

  // Last: its threads use everything above.
  std::unique_ptr<PromptPool> pool_;
};

}  // namespace renga
