// GenAiMetrics: the server's latencies once more, under the names, labels and buckets of
// OpenTelemetry's semantic conventions for generative AI, as its exporter for Prometheus
// spells them. For boards and collectors that know these names.
//
//   gen_ai_server_request_duration_seconds
//   gen_ai_server_time_to_first_token_seconds
//   gen_ai_server_time_per_output_token_seconds
//
// Thread safety: Observe may be called from any thread; it does not allocate.

#pragma once

#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <string>

#include "metrics/server_metrics.h"

namespace renga {

class GenAiMetrics {
 public:
  // Everything is registered here, in `registry`, which outlives this.
  GenAiMetrics(prometheus::Registry& registry, const std::string& model);

  void Observe(const ServedRequest& request);

 private:
  static constexpr size_t kOutcomes = 5;
  using Row = std::array<prometheus::Histogram*, kOutcomes>;

  // [chat or text_completion]
  std::array<Row, 2> duration_{};
  std::array<prometheus::Histogram*, 2> first_token_{};
  std::array<prometheus::Histogram*, 2> per_token_{};
};

}  // namespace renga
