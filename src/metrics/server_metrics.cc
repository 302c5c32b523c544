// The metrics themselves: families, label values, buckets, and the text exposition.
//
// Everything is registered in the constructor, so that every series is there (at 0) from
// the first scrape on and an update is one atomic add.

#include "metrics/server_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string_view>

namespace renga {
namespace {

using Labels = prometheus::Labels;
using Buckets = prometheus::Histogram::BucketBoundaries;

// From 100 us to 120 s: fine enough to see a queue of less than a step.
const Buckets& LatencyBuckets() {
  static const Buckets buckets = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                  0.0075, 0.010,   0.015,  0.020, 0.030,  0.050,
                                  0.075,  0.100,   0.150,  0.250, 0.500,  1.0,
                                  2.5,    5.0,     10.0,   30.0,  60.0,   120.0};
  return buckets;
}

const Buckets& CountBuckets() {
  static const Buckets buckets = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
  return buckets;
}

// Bytes of resident memory, 0 where the system does not say.
double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double total = 0.0;
  double resident = 0.0;
  if (!(statm >> total >> resident)) return 0.0;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// Wall-clock second at which the process began: boot time plus ticks since boot.
double ProcessStartSeconds() {
  std::ifstream stat("/proc/self/stat");
  std::string line;
  if (!std::getline(stat, line)) return 0.0;
  // Field 2 is a name in brackets that may hold anything; field 22 counts from 1.
  size_t at = line.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) {
    at = line.find(' ', at + 1);
  }
  unsigned long long ticks = 0;
  if (at == std::string::npos || std::sscanf(line.c_str() + at, "%llu", &ticks) != 1) {
    return 0.0;
  }
  std::timespec wall{};
  std::timespec boot{};
  clock_gettime(CLOCK_REALTIME, &wall);
  clock_gettime(CLOCK_BOOTTIME, &boot);
  const auto seconds = [](const std::timespec& t) {
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  return seconds(wall) - seconds(boot) +
         static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

struct ServerMetrics::Impl {
  explicit Impl(const std::string& model) : labels{{"model", model}} {}

  prometheus::Counter& Add(const char* name, const char* help, const Labels& extra = {}) {
    return prometheus::BuildCounter()
        .Name(name)
        .Help(help)
        .Labels(labels)
        .Register(registry)
        .Add(extra);
  }
  void Add(Counter& handle, const char* name, const char* help,
           const Labels& extra = {}) {
    handle.metric_ = &Add(name, help, extra);
  }
  void Add(Gauge& handle, const char* name, const char* help) {
    handle.metric_ = &prometheus::BuildGauge()
                          .Name(name)
                          .Help(help)
                          .Labels(labels)
                          .Register(registry)
                          .Add({});
  }
  prometheus::Histogram& AddHistogram(const char* name, const char* help,
                                      const Buckets& buckets, const Labels& extra = {}) {
    return prometheus::BuildHistogram()
        .Name(name)
        .Help(help)
        .Labels(labels)
        .Register(registry)
        .Add(extra, buckets);
  }
  void Add(Histogram& handle, const char* name, const char* help,
           const Buckets& buckets) {
    handle.metric_ = &AddHistogram(name, help, buckets);
  }

  void AddRequestCounters();
  void AddSteps();
  void AddProcess(ServerMetrics& metrics, const std::string& backend);

  const Labels labels;
  prometheus::Registry registry;
  std::array<prometheus::Counter*, 5> outcomes{};
  std::array<prometheus::Counter*, 6> rejections{};
  std::array<prometheus::Counter*, 4> cancellations{};
  std::array<prometheus::Histogram*, 2> first_token{};
  std::array<prometheus::Counter*, 2> prompt_tokens{};
  std::array<prometheus::Gauge*, kPriorities> waiting{};
  std::array<prometheus::Histogram*, 3> step_seconds{};
  prometheus::Gauge* resident_bytes = nullptr;
};

void ServerMetrics::Impl::AddRequestCounters() {
  constexpr std::array kOutcomes = {"ok", "error", "cancelled", "deadline", "rejected"};
  constexpr std::array kReasons = {"queue_full", "deadline_unmeetable", "draining",
                                   "too_long",   "bad_request",         "not_ready"};
  constexpr std::array kStages = {"queued", "prefill", "decode", "write"};
  constexpr std::array kKinds = {"cold", "prefix"};
  constexpr std::array kSources = {"computed", "prefix"};
  for (size_t i = 0; i < kKinds.size(); ++i) {
    first_token[i] = &AddHistogram("renga_time_to_first_token_seconds",
                                   "Arrival to the first token, by where the prompt's "
                                   "keys and values came from",
                                   LatencyBuckets(), {{"kind", kKinds[i]}});
    prompt_tokens[i] = &Add("renga_prompt_tokens_total",
                            "Prompt tokens, by where their keys and values came from",
                            {{"source", kSources[i]}});
  }
  for (size_t i = 0; i < waiting.size(); ++i) {
    waiting[i] =
        &prometheus::BuildGauge()
             .Name("renga_requests_waiting")
             .Help("Requests that wait for the engine, by priority")
             .Labels(labels)
             .Register(registry)
             .Add({{"priority", std::string(PriorityName(static_cast<Priority>(i)))}});
  }
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    outcomes[i] = &Add("renga_requests_total", "Requests that ended, by outcome",
                       {{"outcome", kOutcomes[i]}});
  }
  for (size_t i = 0; i < kReasons.size(); ++i) {
    rejections[i] =
        &Add("renga_rejections_total", "Requests refused before any work, by reason",
             {{"reason", kReasons[i]}});
  }
  for (size_t i = 0; i < kStages.size(); ++i) {
    cancellations[i] = &Add("renga_cancellations_total",
                            "Requests cancelled, by the stage they had reached",
                            {{"stage", kStages[i]}});
  }
}

void ServerMetrics::Impl::AddSteps() {
  constexpr std::array kPhases = {"prefill", "decode", "mixed"};
  for (size_t i = 0; i < kPhases.size(); ++i) {
    step_seconds[i] = &AddHistogram("renga_engine_step_seconds",
                                    "Length of one engine step, by what it computed",
                                    LatencyBuckets(), {{"phase", kPhases[i]}});
  }
}

void ServerMetrics::Impl::AddProcess(ServerMetrics& metrics, const std::string& backend) {
  Add(metrics.ready, "renga_ready", "1 while a request sent now would be served");
  Add(metrics.model_load, "renga_model_load_seconds", "Time to load the model");
  Add(metrics.warm_up, "renga_warm_up_seconds", "Time of the warm-up before ready");
  const size_t slash = backend.find('/');
  const std::string isa = slash == std::string::npos ? "" : backend.substr(slash + 1);
  prometheus::BuildGauge()
      .Name("renga_build_info")
      .Help("Always 1; what runs here")
      .Labels(labels)
      .Register(registry)
      .Add({{"version", RENGA_VERSION},
            {"backend", backend.substr(0, slash)},
            {"isa", isa}})
      .Set(1.0);
  // The names that every Prometheus client uses: without prefix and without model.
  resident_bytes = &prometheus::BuildGauge()
                        .Name("process_resident_memory_bytes")
                        .Help("Resident memory size in bytes")
                        .Register(registry)
                        .Add({});
  metrics.process_rss_bytes.metric_ = resident_bytes;
  prometheus::BuildGauge()
      .Name("process_start_time_seconds")
      .Help("Start time of the process since unix epoch in seconds")
      .Register(registry)
      .Add({})
      .Set(ProcessStartSeconds());
}

ServerMetrics::ServerMetrics(const std::string& model, const std::string& backend)
    : impl_(std::make_unique<Impl>(model)) {
  Impl& add = *impl_;
  add.AddRequestCounters();
  const Buckets& latency = LatencyBuckets();
  add.Add(inter_token_latency, "renga_inter_token_latency_seconds",
          "Time between two tokens of a request, every gap", latency);
  add.Add(request_max_gap, "renga_request_max_gap_seconds",
          "Longest time between two tokens of a request", latency);
  add.Add(request_duration, "renga_request_duration_seconds",
          "Arrival to the end of a request", latency);
  add.Add(request_queue, "renga_request_queue_seconds",
          "Arrival to the first step that computes for the request", latency);
  add.Add(batch_window_wait, "renga_batch_window_wait_seconds",
          "The part of the queue time that the batch window added", latency);
  add.Add(request_prefill, "renga_request_prefill_seconds",
          "First step of a request to its first token", latency);
  add.Add(request_decode, "renga_request_decode_seconds",
          "First token of a request to its last", latency);
  add.Add(tokenize, "renga_tokenize_seconds",
          "Rendering the chat template and encoding the prompt", latency);
  add.Add(time_per_output_token, "renga_time_per_output_token_seconds",
          "Mean time of a request per token after the first", latency);
  add.Add(stream_write, "renga_stream_write_seconds",
          "Time until a message of a stream was taken", latency);
  add.Add(cancel_latency, "renga_cancel_latency_seconds",
          "From a cancel to the end of all that it held", latency);

  add.Add(requests_running, "renga_requests_running", "Sequences in the engine");
  add.Add(queue_tokens, "renga_queue_tokens", "Prompt tokens of the waiting requests");
  add.Add(kv_pages_capacity, "renga_kv_pages_capacity", "Pages of the KV pool");
  add.Add(kv_pages_used, "renga_kv_pages_used",
          "Pages of the KV pool that sequences use");
  add.Add(kv_pages_cached, "renga_kv_pages_cached",
          "Pages of the KV pool that the prefix cache alone holds");
  add.Add(cache_evictions, "renga_kv_cache_evictions_total",
          "Cached pages given up for others");
  add.Add(max_batch, "renga_max_batch", "Requests that may leave the queue together now");
  add.Add(busy_share, "renga_engine_busy_share",
          "Share of the last seconds that was spent inside steps");
  add.Add(scheduler_overhead, "renga_scheduler_overhead_seconds",
          "Time between two steps of a busy engine", latency);
  static const Buckets ratios = {0.25, 0.5, 0.667, 0.769, 0.9, 1.0,
                                 1.1,  1.3, 1.5,   2.0,   4.0, 10.0};
  add.Add(step_prediction, "renga_step_prediction_ratio",
          "Measured length of a step over the predicted one", ratios);
  add.Add(batch_size, "renga_batch_size", "Sequences in a step", CountBuckets());
  add.Add(batch_tokens, "renga_batch_tokens", "Rows in a step", CountBuckets());
  add.AddSteps();
  add.Add(steps, "renga_engine_steps_total", "Engine steps");
  add.Add(engine_busy, "renga_engine_busy_seconds_total", "Time spent inside steps");
  add.Add(engine_last_progress, "renga_engine_last_progress_timestamp_seconds",
          "Unix time of the engine's last step or idle wait");
  add.Add(preemptions, "renga_preemptions_total", "Sequences that gave their pages back");

  add.Add(generated_tokens, "renga_generated_tokens_total", "Sampled tokens");
  add.Add(wasted_tokens_cancelled, "renga_wasted_tokens_total",
          "Tokens computed for nothing, by cause", {{"cause", "cancelled"}});
  add.Add(wasted_tokens_preempted, "renga_wasted_tokens_total",
          "Tokens computed for nothing, by cause", {{"cause", "preempted"}});
  add.AddProcess(*this, backend);
}

ServerMetrics::~ServerMetrics() = default;

std::string ServerMetrics::Serialize() const {
  impl_->resident_bytes->Set(ResidentBytes());
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

void ServerMetrics::CountRequest(RequestOutcome outcome) {
  impl_->outcomes[static_cast<size_t>(outcome)]->Increment();
}

void ServerMetrics::CountRejection(RejectReason reason) {
  impl_->rejections[static_cast<size_t>(reason)]->Increment();
}

void ServerMetrics::CountCancellation(CancelStage stage) {
  impl_->cancellations[static_cast<size_t>(stage)]->Increment();
}

void ServerMetrics::ObserveStep(StepPhase phase, Duration elapsed) {
  impl_->step_seconds[static_cast<size_t>(phase)]->Observe(
      std::chrono::duration<double>(elapsed).count());
}

void ServerMetrics::ObserveFirstToken(KvSource source, Duration elapsed) {
  impl_->first_token[static_cast<size_t>(source)]->Observe(
      std::chrono::duration<double>(elapsed).count());
}

void ServerMetrics::CountPromptTokens(KvSource source, int64_t tokens) {
  impl_->prompt_tokens[static_cast<size_t>(source)]->Increment(
      static_cast<double>(tokens));
}

void ServerMetrics::SetWaiting(Priority priority, int64_t requests) {
  impl_->waiting[static_cast<size_t>(priority)]->Set(static_cast<double>(requests));
}

void Counter::Increment(double by) {
  static_cast<prometheus::Counter*>(metric_)->Increment(by);
}

void Gauge::Set(double value) { static_cast<prometheus::Gauge*>(metric_)->Set(value); }

void Histogram::Observe(double value) {
  static_cast<prometheus::Histogram*>(metric_)->Observe(value);
}

}  // namespace renga
