// For tests that results do not depend on company: runs one set of requests through an
// engine on the real CPU backend and keeps every id and the bits of every logit that a
// token was drawn from.

#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu_backend.h"
#include "base/check.h"
#include "tests/engine/engine_harness.h"

namespace renga {

// A Backend that passes everything on and keeps the logits of each sampled row. A row's
// request is known by its seed, so every request needs a seed of its own.
class LogitRecorder final : public Backend {
 public:
  using Key = std::pair<uint64_t, uint32_t>;  // Seed, index of the token.

  explicit LogitRecorder(Backend& to) : to_(to) {}
  std::map<Key, std::vector<float>> logits;  // [vocab] each

  Status Sample(std::span<const SampleSpec> specs,
                std::span<SampleResult> results) override {
    for (const SampleSpec& spec : specs) {
      const StatusOr<std::span<const float>> row = to_.Logits(spec.logit_row);
      if (!row.ok()) return row.status();
      logits[{spec.seed, spec.token_index}].assign((*row).begin(), (*row).end());
    }
    return to_.Sample(specs, results);
  }

  BackendInfo info() const override { return to_.info(); }
  Status Configure(const GraphShape& shape, const BackendLimits& limits) override {
    return to_.Configure(shape, limits);
  }
  StatusOr<MatrixId> LoadMatrix(std::span<const TensorView> stacked) override {
    return to_.LoadMatrix(stacked);
  }
  StatusOr<VectorId> LoadVector(std::span<const float> values) override {
    return to_.LoadVector(values);
  }
  Status CreateKvPool(const KvGeometry& geometry, int64_t pages) override {
    return to_.CreateKvPool(geometry, pages);
  }
  int64_t page_bytes() const override { return to_.page_bytes(); }
  PageLayout page_layout() const override { return to_.page_layout(); }
  Status ReadPage(PageId page, std::span<std::byte> bytes) override {
    return to_.ReadPage(page, bytes);
  }
  Status WritePage(PageId page, std::span<const std::byte> bytes) override {
    return to_.WritePage(page, bytes);
  }
  Status CopyPageHead(PageId from, PageId to, int32_t tokens) override {
    return to_.CopyPageHead(from, to, tokens);
  }
  Status BeginStep(const StepBatch& batch, const AttendPlan& plan) override {
    return to_.BeginStep(batch, plan);
  }
  Status Embed(MatrixId table) override { return to_.Embed(table); }
  Status NormQkvRopeAppend(int32_t layer, const LayerWeights& weights) override {
    return to_.NormQkvRopeAppend(layer, weights);
  }
  Status Attend(int32_t layer) override { return to_.Attend(layer); }
  Status OutProjAdd(const LayerWeights& weights) override {
    return to_.OutProjAdd(weights);
  }
  Status Mlp(const LayerWeights& weights) override { return to_.Mlp(weights); }
  Status Head(VectorId norm, MatrixId table) override { return to_.Head(norm, table); }
  StatusOr<std::span<const float>> Logits(int32_t row) override {
    return to_.Logits(row);
  }

 private:
  Backend& to_;
};

// How a run of the same requests may differ.
struct Company {
  std::string isa = "portable";
  int32_t threads = 1;
  KvDtype dtype = KvDtype::kF16;
  int32_t batch = 1;  // Sequences that run together; 1: one after the other.
  int32_t slice = 0;  // Prompt rows of one step; 0: all at once.
  int64_t pages = 256;
  size_t rotate = 0;  // The requests arrive in another order.

  std::string Name() const {
    return isa + ", " + std::to_string(threads) + " threads, batch " +
           std::to_string(batch) + ", slice " + std::to_string(slice) + ", " +
           std::to_string(pages) + " pages";
  }
};

struct AskedFor {
  std::vector<TokenId> prompt;
  int64_t tokens = 0;
  float temperature = 0.0f;
};

struct Heard {
  std::vector<std::vector<TokenId>> ids;                    // [request]
  std::map<LogitRecorder::Key, std::vector<float>> logits;  // Seed = 1 + request.
  double preemptions = 0;
};

inline EngineOptions OptionsFor(const Company& company) {
  EngineOptions options;
  options.pages = company.pages;
  options.scheduler.policy = company.batch == 1 ? "serial" : "continuous";
  options.scheduler.max_sequences = company.batch;
  options.scheduler.max_batch = company.batch;
  const int32_t slice = company.slice == 0 ? 4096 : company.slice;
  options.scheduler.prefill_slice_tokens = slice;
  options.scheduler.max_step_tokens = slice;
  return options;
}

inline Heard Ask(const GgufFile& file, const std::vector<AskedFor>& asked,
                 const Company& company) {
  const EngineOptions options = OptionsFor(company);
  auto backend = MakeCpuBackend({.isa = company.isa, .threads = company.threads});
  RENGA_CHECK(backend.ok());
  LogitRecorder recorder(**backend);
  auto transformer = Transformer::Load(file, recorder, EngineBackendLimits(options));
  RENGA_CHECK(transformer.ok());
  const GraphShape& graph = (*transformer)->config().graph;
  const Status pool = recorder.CreateKvPool({.layers = graph.layers,
                                             .kv_heads = graph.kv_heads,
                                             .head_dim = graph.head_dim,
                                             .dtype = company.dtype},
                                            options.pages);
  RENGA_CHECK(pool.ok());

  EngineHarness harness(options, **transformer);
  std::vector<CollectingSink*> sinks(asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    const size_t index = (i + company.rotate) % asked.size();
    EngineRequest request = harness.Request(asked[index].prompt, asked[index].tokens);
    request.sampling.temperature = asked[index].temperature;
    request.seed = 1 + index;
    sinks[index] = &harness.Submit(std::move(request));
  }
  harness.RunToEnd();
  Heard heard;
  for (const CollectingSink* sink : sinks) {
    EXPECT_TRUE(sink->completion().status.ok()) << sink->completion().status.ToString();
    heard.ids.push_back(sink->tokens());
  }
  heard.logits = std::move(recorder.logits);
  heard.preemptions = harness.Metric("renga_preemptions_total");
  return heard;
}

// Equal ids, and logits equal bit for bit.
inline void ExpectSame(const Heard& alone, const Heard& heard, const std::string& name) {
  EXPECT_EQ(alone.ids, heard.ids) << name;
  ASSERT_EQ(alone.logits.size(), heard.logits.size()) << name;
  for (const auto& [key, expected] : alone.logits) {
    const auto found = heard.logits.find(key);
    ASSERT_NE(found, heard.logits.end()) << name;
    ASSERT_EQ(expected.size(), found->second.size());
    ASSERT_EQ(std::memcmp(expected.data(), found->second.data(),
                          expected.size() * sizeof(float)),
              0)
        << name << ": logits of token " << key.second << " of request " << key.first - 1;
  }
}

}  // namespace renga
