#include "metrics/gen_ai_metrics.h"

namespace renga {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

// As the conventions ask for.
const Buckets& DurationBuckets() {
  static const Buckets buckets = {0.01, 0.02, 0.04, 0.08,  0.16,  0.32,  0.64,
                                  1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92};
  return buckets;
}

const Buckets& FirstTokenBuckets() {
  static const Buckets buckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                  0.25,  0.5,   0.75, 1.0,  2.5,  5.0,  7.5,  10.0};
  return buckets;
}

const Buckets& PerTokenBuckets() {
  static const Buckets buckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                  0.3,  0.4,   0.5,  0.75,  1.0, 2.5};
  return buckets;
}

constexpr std::array kOperations = {"chat", "text_completion"};
// The label error.type, by RequestOutcome; a request that went well has none.
constexpr std::array kErrors = {"", "error", "cancelled", "deadline_exceeded",
                                "rejected"};

double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

prometheus::Family<prometheus::Histogram>& AddFamily(prometheus::Registry& registry,
                                                     const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

}  // namespace

GenAiMetrics::GenAiMetrics(prometheus::Registry& registry, const std::string& model) {
  auto& duration = AddFamily(registry, "gen_ai_server_request_duration_seconds",
                             "Arrival to the end of a request (OpenTelemetry's name)");
  auto& first_token = AddFamily(registry, "gen_ai_server_time_to_first_token_seconds",
                                "Arrival to the first token (OpenTelemetry's name)");
  auto& per_token = AddFamily(
      registry, "gen_ai_server_time_per_output_token_seconds",
      "Mean time of a request per token after the first (OpenTelemetry's name)");
  for (size_t i = 0; i < kOperations.size(); ++i) {
    const prometheus::Labels labels = {{"gen_ai_operation_name", kOperations[i]},
                                       {"gen_ai_provider_name", "renga"},
                                       {"gen_ai_request_model", model},
                                       {"gen_ai_response_model", model}};
    first_token_[i] = &first_token.Add(labels, FirstTokenBuckets());
    per_token_[i] = &per_token.Add(labels, PerTokenBuckets());
    for (size_t outcome = 0; outcome < kErrors.size(); ++outcome) {
      prometheus::Labels all = labels;
      all.emplace("error_type", kErrors[outcome]);
      duration_[i][outcome] = &duration.Add(all, DurationBuckets());
    }
  }
}

void GenAiMetrics::Observe(const ServedRequest& request) {
  const size_t operation = request.chat ? 0 : 1;
  duration_[operation][static_cast<size_t>(request.outcome)]->Observe(
      Seconds(request.elapsed));
  if (request.first_token > Duration{}) {
    first_token_[operation]->Observe(Seconds(request.first_token));
  }
  if (request.per_token > Duration{}) {
    per_token_[operation]->Observe(Seconds(request.per_token));
  }
}

}  // namespace renga
