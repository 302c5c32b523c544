// The default model on a backend, and what Hugging Face transformers says of it
// (README.md here).

#pragma once

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu_backend.h"
#include "formats/gguf_file.h"
#include "model/transformer.h"

namespace renga {

inline constexpr double kDecisiveGap = 0.15;   // Between the reference's two best logits.
inline constexpr double kLargestError = 0.35;  // Of one of the top 32 logits.
inline constexpr double kMeanError = 0.08;     // Over the top 32 logits of a prompt.
inline constexpr int32_t kEndOfTurn = 2;
inline constexpr BackendLimits kGoldenLimits{
    .max_rows = 512, .max_logit_rows = 1, .max_sequences = 1, .max_pages = 16};

inline std::string ModelPath() {
  if (const char* path = std::getenv("RENGA_TEST_MODEL"); path != nullptr) return path;
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : "") +
         "/.cache/renga/SmolLM2-135M-Instruct.Q4_1.gguf";
}

struct Golden {
  std::vector<TokenId> prompt;
  std::vector<TokenId> top_ids;
  std::vector<double> top_logits;
  double logsumexp = 0.0;
  std::vector<TokenId> greedy_ids;
  std::vector<double> greedy_gaps;
};

inline std::vector<Golden> ReadGoldens() {
  std::ifstream file(std::string(RENGA_TEST_DATA) + "/golden/smollm2/logits.json");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::vector<Golden> goldens;
  const boost::json::value rows = boost::json::parse(text);
  for (const boost::json::value& row : rows.as_array()) {
    const boost::json::object& fields = row.as_object();
    goldens.push_back(
        {.prompt = boost::json::value_to<std::vector<TokenId>>(fields.at("prompt_ids")),
         .top_ids = boost::json::value_to<std::vector<TokenId>>(fields.at("top_ids")),
         .top_logits =
             boost::json::value_to<std::vector<double>>(fields.at("top_logits")),
         .logsumexp = fields.at("logsumexp").to_number<double>(),
         .greedy_ids =
             boost::json::value_to<std::vector<TokenId>>(fields.at("greedy_ids")),
         .greedy_gaps =
             boost::json::value_to<std::vector<double>>(fields.at("greedy_top2_gaps"))});
  }
  return goldens;
}

// The model on one backend, with the pages of one sequence.
class SmolLm2 {
 public:
  explicit SmolLm2(const std::string& isa, const std::string& precision = "high")
      : SmolLm2(MakeCpuBackend({.isa = isa, .threads = 0, .precision = precision})) {}
  explicit SmolLm2(StatusOr<std::unique_ptr<Backend>> backend) {
    status_ = Load(std::move(backend));
  }

  const Status& status() const { return status_; }
  std::string backend_name() const { return backend_->info().name; }

  // The logits after `tokens`, which stand at positions from `first` on.
  StatusOr<std::vector<float>> Step(std::span<const TokenId> tokens, int32_t first) {
    const auto rows = static_cast<int32_t>(tokens.size());
    const SequenceRows sequence{
        .first_row = 0, .rows = rows, .first_position = first, .pages = pages_};
    const int32_t logit_row = rows - 1;
    const Status status = transformer_->Forward(
        {.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = {&logit_row, 1}});
    if (!status.ok()) return status;
    const auto logits = backend_->Logits(0);
    if (!logits.ok()) return logits.status();
    return std::vector<float>(logits->begin(), logits->end());
  }

 private:
  Status Load(StatusOr<std::unique_ptr<Backend>> backend) {
    auto file = GgufFile::Open(ModelPath());
    if (!file.ok()) return file.status();
    if (!backend.ok()) return backend.status();
    backend_ = std::move(*backend);
    auto transformer = Transformer::Load(**file, *backend_, kGoldenLimits);
    if (!transformer.ok()) return transformer.status();
    transformer_ = std::move(*transformer);
    const GraphShape& graph = transformer_->config().graph;
    for (PageId page = 0; page < kGoldenLimits.max_pages; ++page) pages_.push_back(page);
    return backend_->CreateKvPool({.layers = graph.layers,
                                   .kv_heads = graph.kv_heads,
                                   .head_dim = graph.head_dim,
                                   .dtype = KvDtype::kF16},
                                  kGoldenLimits.max_pages);
  }

  Status status_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Transformer> transformer_;
  std::vector<PageId> pages_;
};

inline TokenId Greedy(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

inline double LogSumExp(const std::vector<float>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

// KL(reference || ours) over the reference's top 32, the rest of the mass as one outcome.
inline double Divergence(const Golden& golden, const std::vector<float>& logits) {
  const double ours = LogSumExp(logits);
  double kl = 0.0, p_rest = 1.0, q_rest = 1.0;
  for (size_t i = 0; i < golden.top_ids.size(); ++i) {
    const double p = std::exp(golden.top_logits[i] - golden.logsumexp);
    const double q = std::exp(logits[static_cast<size_t>(golden.top_ids[i])] - ours);
    kl += p * std::log(p / q);
    p_rest -= p;
    q_rest -= q;
  }
  if (p_rest > 1e-6 && q_rest > 1e-6) kl += p_rest * std::log(p_rest / q_rest);
  return kl;
}

}  // namespace renga
