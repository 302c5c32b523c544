// EngineHarness: an engine with all that it talks to, for tests.
//
// The engine runs on the test's own thread (RunToEnd) unless a test starts one, so most
// tests are one deterministic course of events; what must happen in the middle is done by
// a backend's step hook.

#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/fakes/collecting_sink.h"
#include "tests/fakes/manual_clock.h"

namespace renga {

// A transformer whose backend ignores the weights (FakeBackend).
inline std::unique_ptr<Transformer> WeightlessTransformer(Backend& backend,
                                                          int64_t context,
                                                          const EngineOptions& options,
                                                          int32_t vocab = 1000,
                                                          KvDtype dtype = KvDtype::kF16) {
  ModelConfig config;
  config.architecture = "fake";
  config.name = "fake";
  config.context_length = context;
  config.graph.layers = 1;
  config.graph.kv_heads = 1;
  config.graph.vocab = vocab;
  ModelWeights weights;
  weights.layers.resize(1);
  const BackendLimits limits = EngineBackendLimits(options);
  EXPECT_TRUE(backend.Configure(config.graph, limits).ok());
  EXPECT_TRUE(backend.CreateKvPool({.dtype = dtype}, options.pages).ok());
  return std::make_unique<Transformer>(config, weights, backend, limits);
}

class EngineHarness {
 public:
  EngineHarness(const EngineOptions& options, Transformer& transformer,
                const WaitQueue::Limits& limits = {})
      : queue(limits), engine(options, transformer, queue, board, metrics, clock) {}

  // A request with the usual fields set; the caller may change it before Submit.
  EngineRequest Request(std::vector<TokenId> prompt, int64_t max_tokens) {
    EngineRequest request;
    request.id = RequestId{next_id_++};
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0.0f;
    request.max_tokens = max_tokens;
    request.max_tokens_given = true;
    request.arrival = clock.Now();
    request.ticket = metrics.flight_recorder.Open(request.id, request.arrival);
    request.queued = request.arrival;
    return request;
  }

  CollectingSink& Submit(EngineRequest request, CollectingSink::Script script = nullptr) {
    return Push(std::move(request), sinks_.emplace_back(std::move(script)));
  }
  CollectingSink& SubmitChoices(EngineRequest request,
                                CollectingSink::ChoiceScript script) {
    return Push(std::move(request), sinks_.emplace_back(std::move(script)));
  }
  CollectingSink& Submit(std::vector<TokenId> prompt, int64_t max_tokens,
                         CollectingSink::Script script = nullptr) {
    return Submit(Request(std::move(prompt), max_tokens), std::move(script));
  }

  // Lets the engine work off all that was submitted, on this thread.
  void RunToEnd() {
    queue.Close();
    engine.Run();
    ExpectAllEnded();
  }

  // Every sink was told once, no sequence holds a page, nothing counts as waiting.
  void ExpectAllEnded() {
    for (const CollectingSink& sink : sinks_) EXPECT_TRUE(sink.done());
    const EngineSnapshot snapshot = board.Read();
    EXPECT_EQ(snapshot.pages_free + snapshot.pages_cached, snapshot.pages_total);
    EXPECT_EQ(Metric("renga_kv_pages_used"), 0);
    EXPECT_EQ(Metric("renga_requests_running"), 0);
    EXPECT_EQ(Metric("renga_requests_waiting"), 0);
    EXPECT_EQ(snapshot.running, 0);
    EXPECT_EQ(snapshot.waiting, 0);
    EXPECT_FALSE(snapshot.busy);
    EXPECT_EQ(queue.waiting_requests(), 0);
    EXPECT_EQ(queue.waiting_tokens(), 0);
  }

  // The value of one metric line of the exposition, 0 if there is none.
  double Metric(const std::string& name) const {
    const std::string text = metrics.Serialize();
    double sum = 0;
    for (size_t at = text.find("\n" + name); at != std::string::npos;
         at = text.find("\n" + name, at + 1)) {
      const char next = text[at + 1 + name.size()];
      if (next != '{' && next != ' ') continue;
      const size_t end = text.find('\n', at + 1);
      const size_t space = text.rfind(' ', end);
      sum += std::stod(text.substr(space + 1, end - space - 1));
    }
    return sum;
  }

  ManualClock clock;
  SnapshotBoard board;
  ServerMetrics metrics{"fake", "fake", {.recorder = {.requests = 64}}};
  WaitQueue queue;
  Engine engine;

 private:
  CollectingSink& Push(EngineRequest request, CollectingSink& sink) {
    request.sink = std::make_unique<ForwardingSink>(sink);
    EXPECT_EQ(queue.TryPush(request), WaitQueue::PushResult::kOk);
    return sink;
  }

  uint64_t next_id_ = 1;
  std::deque<CollectingSink> sinks_;  // They may not move.
};

// A prompt of `tokens` ids that differs from those of other `tag`s, and holds no poison.
inline std::vector<TokenId> PromptOf(int64_t tokens, int tag) {
  std::vector<TokenId> prompt;
  for (int64_t i = 0; i < tokens; ++i) {
    prompt.push_back(static_cast<TokenId>(10 + (i * 7 + tag * 13) % 200));
  }
  return prompt;
}

}  // namespace renga
