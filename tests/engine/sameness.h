// For tests that results do not depend on company: runs one set of requests through an
// engine on the real CPU backend and keeps every id and the bits of every logit that a
// token was drawn from.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <compare>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu_backend.h"
#include "backend/forwarding_backend.h"
#include "base/check.h"
#include "tests/engine/engine_harness.h"

namespace renga {

// A Backend that passes everything on and keeps the logits of each row that a token is
// drawn from. Its request is known by the seed, so every request needs one of its own.
class LogitRecorder final : public ForwardingBackend {
 public:
  struct Key {
    uint64_t seed = 0;
    uint32_t choice = 0;
    uint32_t token_index = 0;
    auto operator<=>(const Key&) const = default;
  };

  using ForwardingBackend::ForwardingBackend;

  std::map<Key, std::vector<float>> logits;  // [vocab] each

  Status Sample(std::span<const SampleSpec> specs,
                std::span<SampleResult> results) override {
    for (const SampleSpec& spec : specs) {
      if (spec.given >= 0) continue;
      const StatusOr<std::span<const float>> row = Logits(spec.logit_row);
      if (!row.ok()) return row.status();
      logits[{spec.seed, spec.choice, spec.token_index}].assign((*row).begin(),
                                                                (*row).end());
    }
    return ForwardingBackend::Sample(specs, results);
  }
};

// How a run of the same requests may differ.
struct Company {
  std::string isa = "portable";
  int32_t threads = 1;
  std::string precision = "fast";
  KvDtype dtype = KvDtype::kF16;
  int32_t batch = 1;  // Sequences that run together; 1: one request after the other.
  int32_t slice = 0;  // Prompt rows of one step; 0: all at once.
  int64_t pages = 256;
  size_t rotate = 0;                  // The requests arrive in another order.
  bool reuse = false;                 // The prefix cache is on.
  bool timed = false;                 // Slices are cut by the measured time of steps.
  bool slow_readers = false;          // Some readers pause; see SlowReaders.
  std::string policy = "continuous";  // Of a batch above 1.

  std::string Name() const {
    return isa + ", " + std::to_string(threads) + " threads, batch " +
           std::to_string(batch) + ", slice " + std::to_string(slice) + ", " +
           std::to_string(pages) + " pages, " + policy + (reuse ? ", reuse" : "") +
           (timed ? ", timed" : "") + (slow_readers ? ", slow readers" : "");
  }
};

struct AskedFor {
  std::vector<TokenId> prompt;
  int64_t tokens = 0;
  float temperature = 0.0f;
  SamplingParams sampling{};  // But the temperature.
  int32_t n = 1;
  int32_t logprobs = -1;
  int32_t prompt_logprobs = -1;
  bool use_prefix_cache = true;
  std::string cache_salt{};
};

// What one request was told, logits left aside.
struct Answer {
  std::vector<std::vector<TokenId>> ids;            // [n]
  std::vector<std::vector<TokenLogprob>> logprobs;  // [n]
  std::vector<TokenLogprob> prompt_logprobs;
};

struct Heard {
  std::vector<Answer> answers;                              // [request]
  std::map<LogitRecorder::Key, std::vector<float>> logits;  // Seed = 1 + request.
  double preemptions = 0;
  double cached_tokens = 0;

  std::vector<TokenId> ids(size_t request) const { return answers[request].ids[0]; }
};

// Readers that pause now and then, and go on when others have had some tokens: whoever
// pauses stays so until some tokens later, or until nobody else could wake it. `most` of
// them pause at a time, so that they leave places to those that wait.
class SlowReaders {
 public:
  SlowReaders(WaitQueue& queue, size_t requests, size_t most)
      : queue_(queue), unfinished_(requests), most_(most) {}

  SinkVerdict OnToken(RequestId id, bool pauses) {
    if (++tokens_ % 5 == 0) ResumeOldest();
    if (!pauses) return SinkVerdict::kContinue;
    paused_.push_back(id);
    while (paused_.size() > most_) ResumeOldest();
    if (paused_.size() >= unfinished_) ResumeAll();
    return SinkVerdict::kPause;
  }
  void OnDone() {
    --unfinished_;
    ResumeAll();
  }

 private:
  void ResumeOldest() {
    if (paused_.empty()) return;
    queue_.PostResume(paused_.front());
    paused_.pop_front();
  }
  void ResumeAll() {
    while (!paused_.empty()) ResumeOldest();
  }

  WaitQueue& queue_;
  size_t unfinished_;
  const size_t most_;
  int64_t tokens_ = 0;
  std::deque<RequestId> paused_;
};

class SlowSink final : public TokenSink {
 public:
  SlowSink(CollectingSink& to, SlowReaders& readers, RequestId id, bool slow)
      : to_(to), readers_(readers), id_(id), slow_(slow) {}

  void OnStart(const StartInfo& info) override { to_.OnStart(info); }
  SinkVerdict OnToken(const TokenChunk& chunk) override {
    to_.OnToken(chunk);
    return readers_.OnToken(id_, slow_ && ++tokens_ % 3 == 0);
  }
  void OnChoiceEnd(const ChoiceEnd& end) override { to_.OnChoiceEnd(end); }
  void OnDone(const Completion& completion) override {
    to_.OnDone(completion);
    readers_.OnDone();
  }

 private:
  CollectingSink& to_;
  SlowReaders& readers_;
  const RequestId id_;
  const bool slow_;
  int64_t tokens_ = 0;
};

inline EngineOptions OptionsFor(const Company& company,
                                const std::vector<AskedFor>& asked) {
  EngineOptions options;
  options.pages = company.pages;
  options.prefix_cache = company.reuse;
  options.scheduler.policy = company.batch == 1 ? "serial" : company.policy;
  options.scheduler.max_sequences = company.batch;
  for (const AskedFor& one : asked) {
    options.scheduler.max_sequences = std::max(options.scheduler.max_sequences, one.n);
  }
  options.scheduler.max_batch = company.batch;
  const int32_t slice = company.slice == 0 ? 4096 : company.slice;
  options.scheduler.prefill_slice_tokens = company.timed ? 0 : slice;
  options.scheduler.max_decode_stall_ms = 1;
  options.scheduler.max_step_tokens = slice;
  return options;
}

inline Answer AnswerOf(const CollectingSink& sink, int32_t n) {
  EXPECT_TRUE(sink.completion().status.ok()) << sink.completion().status.ToString();
  Answer answer;
  for (int32_t choice = 0; choice < n; ++choice) {
    answer.ids.push_back(sink.tokens(choice));
    answer.logprobs.push_back(sink.logprobs(choice));
  }
  answer.prompt_logprobs = sink.prompt_logprobs();
  return answer;
}

inline EngineRequest RequestFor(EngineHarness& harness, const AskedFor& asked,
                                uint64_t seed) {
  EngineRequest request = harness.Request(asked.prompt, asked.tokens);
  request.sampling = asked.sampling;
  request.sampling.temperature = asked.temperature;
  request.seed = seed;
  request.n = asked.n;
  request.logprobs = asked.logprobs;
  request.prompt_logprobs = asked.prompt_logprobs;
  request.use_prefix_cache = asked.use_prefix_cache;
  request.cache_salt = asked.cache_salt;
  return request;
}

inline Heard AskOn(Backend& backend, const GgufFile& file,
                   const std::vector<AskedFor>& asked, const Company& company) {
  const EngineOptions options = OptionsFor(company, asked);
  LogitRecorder recorder(backend);
  auto transformer = Transformer::Load(file, recorder, EngineBackendLimits(options));
  RENGA_CHECK(transformer.ok());
  const GraphShape& graph = (*transformer)->config().graph;
  const Status pool = recorder.CreateKvPool({.layers = graph.layers,
                                             .kv_heads = graph.kv_heads,
                                             .head_dim = graph.head_dim,
                                             .dtype = company.dtype},
                                            options.pages);
  RENGA_CHECK(pool.ok());

  EngineHarness harness(options, **transformer,
                        {.max_requests = 1 << 20, .max_tokens = 1 << 20});
  // A request has up to three choices.
  SlowReaders readers(harness.queue, asked.size(),
                      static_cast<size_t>(options.scheduler.max_sequences / 3));
  std::deque<CollectingSink> sinks(asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    const size_t index = (i + company.rotate) % asked.size();
    EngineRequest request = RequestFor(harness, asked[index], 1 + index);
    request.sink = std::make_unique<SlowSink>(sinks[index], readers, request.id,
                                              company.slow_readers && index % 3 == 0);
    EXPECT_EQ(harness.queue.TryPush(request), WaitQueue::PushResult::kOk);
  }
  harness.RunToEnd();
  Heard heard;
  for (size_t i = 0; i < asked.size(); ++i) {
    heard.answers.push_back(AnswerOf(sinks[i], asked[i].n));
    heard.cached_tokens += static_cast<double>(sinks[i].completion().usage.cached_tokens);
  }
  heard.logits = std::move(recorder.logits);
  heard.preemptions = harness.Metric("renga_preemptions_total");
  return heard;
}

// On the CPU, as `company` wants it.
inline Heard Ask(const GgufFile& file, const std::vector<AskedFor>& asked,
                 const Company& company) {
  auto backend = MakeCpuBackend(
      {.isa = company.isa, .threads = company.threads, .precision = company.precision});
  RENGA_CHECK(backend.ok());
  return AskOn(**backend, file, asked, company);
}

inline void ExpectSameScores(const std::vector<TokenLogprob>& alone,
                             const std::vector<TokenLogprob>& heard,
                             const std::string& name) {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  ASSERT_EQ(alone.size(), heard.size()) << name;
  for (size_t i = 0; i < alone.size(); ++i) {
    ASSERT_EQ(alone[i].token, heard[i].token) << name;
    ASSERT_EQ(bits(alone[i].logprob), bits(heard[i].logprob)) << name;
    ASSERT_EQ(alone[i].top.size(), heard[i].top.size()) << name;
    for (size_t k = 0; k < alone[i].top.size(); ++k) {
      ASSERT_EQ(alone[i].top[k].token, heard[i].top[k].token) << name;
      ASSERT_EQ(bits(alone[i].top[k].logprob), bits(heard[i].top[k].logprob)) << name;
    }
  }
}

// Equal ids, and logits and log-probabilities equal bit for bit.
inline void ExpectSame(const Heard& alone, const Heard& heard, const std::string& name) {
  ASSERT_EQ(alone.answers.size(), heard.answers.size());
  for (size_t i = 0; i < alone.answers.size(); ++i) {
    const std::string who = name + ", request " + std::to_string(i);
    const Answer& expected = alone.answers[i];
    const Answer& answer = heard.answers[i];
    ASSERT_EQ(expected.ids, answer.ids) << who;
    ExpectSameScores(expected.prompt_logprobs, answer.prompt_logprobs, who);
    for (size_t choice = 0; choice < expected.ids.size(); ++choice) {
      ExpectSameScores(expected.logprobs[choice], answer.logprobs[choice], who);
    }
  }
  ASSERT_EQ(alone.logits.size(), heard.logits.size()) << name;
  for (const auto& [key, expected] : alone.logits) {
    const auto found = heard.logits.find(key);
    ASSERT_NE(found, heard.logits.end()) << name;
    ASSERT_EQ(expected.size(), found->second.size());
    ASSERT_EQ(std::memcmp(expected.data(), found->second.data(),
                          expected.size() * sizeof(float)),
              0)
        << name << ": logits of token " << key.token_index << " of choice " << key.choice
        << " of request " << key.seed - 1;
  }
}

}  // namespace renga
