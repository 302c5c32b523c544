// The metrics themselves: families, label values, buckets, and the text exposition.
//
// Everything is registered in the constructor, so that every series is there (at 0) from
// the first scrape on and an update is one atomic add. What is known only when somebody
// looks (the process, the live latencies) is filled in by Serialize.

#include "metrics/server_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <atomic>
#include <string_view>

#include "base/check.h"
#include "base/mutex.h"
#include "base/system_clock.h"
#include "metrics/device_metrics.h"
#include "metrics/gen_ai_metrics.h"
#include "metrics/process_stats.h"
#include "metrics/sliding_quantiles.h"

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

constexpr std::array kLiveQuantiles = {0.5, 0.95, 0.99};
constexpr std::array kLiveQuantileNames = {"0.5", "0.95", "0.99"};

}  // namespace

// One latency's last minute, and the gauges that show it.
class LiveLatency {
 public:
  using Gauges = std::array<prometheus::Gauge*, kLiveQuantiles.size()>;

  LiveLatency(const Clock& clock, const Gauges& gauges)
      : clock_(clock), gauges_(gauges) {}

  void Observe(Duration value) RENGA_EXCLUDES(mutex_) {
    const TimePoint now = clock_.Now();
    MutexLock lock(mutex_);
    sliding_.Observe(value, now);
  }
  void Show() RENGA_EXCLUDES(mutex_) {
    std::array<double, kLiveQuantiles.size()> seconds{};
    {
      MutexLock lock(mutex_);
      sliding_.Quantiles(clock_.Now(), kLiveQuantiles, seconds);
    }
    for (size_t i = 0; i < seconds.size(); ++i) gauges_[i]->Set(seconds[i]);
  }

 private:
  const Clock& clock_;
  const Gauges gauges_;
  Mutex mutex_;
  SlidingQuantiles sliding_ RENGA_GUARDED_BY(mutex_);
};

std::string_view MemoryRowName(size_t row) {
  if (row == kHeapRow) return "heap";
  if (row == kProcessRow) return "process";
  return MemoryPurposeName(static_cast<MemoryPurpose>(row));
}

struct ServerMetrics::Impl {
  Impl(const std::string& model, const Clock* given)
      : labels{{"model", model}},
        clock(given == nullptr ? system_clock : *given),
        device(registry, model) {}

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
  prometheus::Gauge& AddGauge(const char* name, const char* help,
                              const Labels& extra = {}) {
    return prometheus::BuildGauge()
        .Name(name)
        .Help(help)
        .Labels(labels)
        .Register(registry)
        .Add(extra);
  }
  void Add(Gauge& handle, const char* name, const char* help) {
    handle.metric_ = &AddGauge(name, help);
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

  // The names that every Prometheus client uses: without prefix and without model.
  prometheus::Gauge& AddProcessGauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
  }

  void AddRequestCounters();
  void AddFirstTokens();
  void AddSteps();
  void AddMemory();
  void AddServer(ServerMetrics& metrics, const std::string& backend);
  void AddProcess();
  std::unique_ptr<LiveLatency> AddLive(const char* metric);
  void ShowProcess() RENGA_EXCLUDES(mutex);

  const Labels labels;
  const SystemClock system_clock;
  const Clock& clock;
  prometheus::Registry registry;
  DeviceMetrics device;
  std::array<prometheus::Counter*, 5> outcomes{};
  std::array<prometheus::Histogram*, 5> duration{};
  std::array<prometheus::Counter*, 7> rejections{};
  std::array<prometheus::Counter*, 4> cancellations{};
  std::array<prometheus::Histogram*, 2> first_token{};
  std::array<prometheus::Counter*, 2> prompt_tokens{};
  std::array<prometheus::Gauge*, kPriorities> waiting{};
  std::array<prometheus::Histogram*, 3> step_seconds{};

  struct MemoryRow {
    prometheus::Gauge* bytes = nullptr;
    prometheus::Gauge* buffers = nullptr;  // Of a MemoryPurpose only.
    prometheus::Gauge* leak_suspected = nullptr;
  };
  std::array<MemoryRow, kMemoryRows> memory{};
  std::atomic<int64_t> kv_page_bytes{0};
  prometheus::Gauge* kv_bytes = nullptr;

  std::unique_ptr<LiveLatency> live_first_token;
  std::unique_ptr<LiveLatency> live_inter_token;
  std::unique_ptr<LiveLatency> live_request;
  std::unique_ptr<GenAiMetrics> gen_ai;  // nullptr: not wanted.

  // A counter can only grow: two scrapes at once must not both add the same.
  Mutex mutex;
  prometheus::Counter* cpu_seconds RENGA_GUARDED_BY(mutex) = nullptr;
  prometheus::Gauge* resident_bytes = nullptr;
  prometheus::Gauge* virtual_bytes = nullptr;
  prometheus::Gauge* threads = nullptr;
  prometheus::Gauge* open_descriptors = nullptr;
  prometheus::Gauge* max_descriptors = nullptr;
};

void ServerMetrics::Impl::AddRequestCounters() {
  constexpr std::array kOutcomes = {"ok", "error", "cancelled", "deadline", "rejected"};
  constexpr std::array kReasons = {"queue_full",     "deadline_unmeetable", "draining",
                                   "too_long",       "bad_request",         "not_ready",
                                   "unauthenticated"};
  constexpr std::array kStages = {"queued", "prefill", "decode", "write"};
  for (size_t i = 0; i < waiting.size(); ++i) {
    waiting[i] = &AddGauge(
        "renga_requests_waiting", "Requests that wait for the engine, by priority",
        {{"priority", std::string(PriorityName(static_cast<Priority>(i)))}});
  }
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    outcomes[i] = &Add("renga_requests_total", "Requests that ended, by outcome",
                       {{"outcome", kOutcomes[i]}});
    duration[i] = &AddHistogram("renga_request_duration_seconds",
                                "Arrival to the end of a request, by outcome",
                                LatencyBuckets(), {{"outcome", kOutcomes[i]}});
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

void ServerMetrics::Impl::AddFirstTokens() {
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
}

void ServerMetrics::Impl::AddMemory() {
  for (size_t row = 0; row < memory.size(); ++row) {
    const Labels purpose = {{"purpose", std::string(MemoryRowName(row))}};
    memory[row].bytes = &AddGauge(
        "renga_memory_bytes",
        "Live bytes by purpose; heap: the C++ heap, process: resident memory", purpose);
    memory[row].leak_suspected =
        &AddGauge("renga_memory_leak_suspected",
                  "1 while the memory check sees a steady growth at equal load", purpose);
    if (row >= kMemoryPurposes) continue;
    memory[row].buffers =
        &AddGauge("renga_memory_buffers", "Live buffers by purpose", purpose);
  }
  kv_bytes = &AddGauge("renga_kv_bytes", "Keys and values held, by where they are",
                       {{"tier", "ram"}});
}

void ServerMetrics::Impl::AddServer(ServerMetrics& metrics, const std::string& backend) {
  Add(metrics.ready, "renga_ready", "1 while a request sent now would be served");
  Add(metrics.model_load, "renga_model_load_seconds", "Time to load the model");
  Add(metrics.warm_up, "renga_warm_up_seconds", "Time of the warm-up before ready");
  const size_t slash = backend.find('/');
  const std::string isa = slash == std::string::npos ? "" : backend.substr(slash + 1);
  AddGauge(
      "renga_build_info", "Always 1; what runs here",
      {{"version", RENGA_VERSION}, {"backend", backend.substr(0, slash)}, {"isa", isa}})
      .Set(1.0);
  live_first_token = AddLive("time_to_first_token");
  live_inter_token = AddLive("inter_token");
  live_request = AddLive("request_duration");
  metrics.inter_token_latency.live_ = live_inter_token.get();
}

std::unique_ptr<LiveLatency> ServerMetrics::Impl::AddLive(const char* metric) {
  LiveLatency::Gauges gauges{};
  for (size_t i = 0; i < gauges.size(); ++i) {
    gauges[i] = &AddGauge("renga_latency_seconds_live",
                          "Quantiles over the last minute; 0: nothing was observed",
                          {{"metric", metric}, {"q", kLiveQuantileNames[i]}});
  }
  return std::make_unique<LiveLatency>(clock, gauges);
}

void ServerMetrics::Impl::AddProcess() {
  {
    MutexLock lock(mutex);
    cpu_seconds = &prometheus::BuildCounter()
                       .Name("process_cpu_seconds_total")
                       .Help("Total user and system CPU time spent in seconds")
                       .Register(registry)
                       .Add({});
  }
  resident_bytes =
      &AddProcessGauge("process_resident_memory_bytes", "Resident memory size in bytes");
  virtual_bytes =
      &AddProcessGauge("process_virtual_memory_bytes", "Virtual memory size in bytes");
  threads = &AddProcessGauge("process_threads", "Number of OS threads in the process");
  open_descriptors =
      &AddProcessGauge("process_open_fds", "Number of open file descriptors");
  max_descriptors =
      &AddProcessGauge("process_max_fds", "Maximum number of open file descriptors");
  AddProcessGauge("process_start_time_seconds",
                  "Start time of the process since unix epoch in seconds")
      .Set(ReadProcessStats().start_seconds);
}

void ServerMetrics::Impl::ShowProcess() {
  const ProcessStats stats = ReadProcessStats();
  resident_bytes->Set(stats.resident_bytes);
  virtual_bytes->Set(stats.virtual_bytes);
  threads->Set(stats.threads);
  open_descriptors->Set(stats.open_descriptors);
  max_descriptors->Set(stats.max_descriptors);
  MutexLock lock(mutex);
  const double grown = stats.cpu_seconds - cpu_seconds->Value();
  if (grown > 0.0) cpu_seconds->Increment(grown);
}

ServerMetrics::ServerMetrics(const std::string& model, const std::string& backend,
                             const MetricsOptions& options)
    : flight_recorder(options.recorder),
      impl_(std::make_unique<Impl>(model, options.clock)) {
  AddLatencies();
  AddLoad();
  AddTokens();
  impl_->AddMemory();
  impl_->AddServer(*this, backend);
  impl_->AddProcess();
  if (options.otel_aliases) {
    impl_->gen_ai = std::make_unique<GenAiMetrics>(impl_->registry, model);
  }
}

ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::AddLatencies() {
  Impl& add = *impl_;
  add.AddFirstTokens();
  const Buckets& latency = LatencyBuckets();
  add.Add(inter_token_latency, "renga_inter_token_latency_seconds",
          "Time between two tokens of a request, every gap", latency);
  add.Add(request_max_gap, "renga_request_max_gap_seconds",
          "Longest time between two tokens of a request", latency);
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
}

void ServerMetrics::AddLoad() {
  Impl& add = *impl_;
  const Buckets& latency = LatencyBuckets();
  add.AddRequestCounters();
  add.Add(requests_running, "renga_requests_running", "Requests in the engine");
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
}

void ServerMetrics::AddTokens() {
  Impl& add = *impl_;
  add.Add(generated_tokens, "renga_generated_tokens_total", "Sampled tokens");
  add.Add(wasted_tokens_cancelled, "renga_wasted_tokens_total",
          "Tokens computed for nothing, by cause", {{"cause", "cancelled"}});
  add.Add(wasted_tokens_preempted, "renga_wasted_tokens_total",
          "Tokens computed for nothing, by cause", {{"cause", "preempted"}});
}

std::string ServerMetrics::Serialize() const {
  impl_->ShowProcess();
  impl_->live_first_token->Show();
  impl_->live_inter_token->Show();
  impl_->live_request->Show();
  const auto pages = [](const Gauge& gauge) {
    return static_cast<const prometheus::Gauge*>(gauge.metric_)->Value();
  };
  impl_->kv_bytes->Set((pages(kv_pages_used) + pages(kv_pages_cached)) *
                       static_cast<double>(impl_->kv_page_bytes));
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

void ServerMetrics::CountRequest(const ServedRequest& request) {
  const auto i = static_cast<size_t>(request.outcome);
  impl_->outcomes[i]->Increment();
  impl_->duration[i]->Observe(std::chrono::duration<double>(request.elapsed).count());
  if (request.outcome == RequestOutcome::kOk) {
    impl_->live_request->Observe(request.elapsed);
  }
  if (impl_->gen_ai != nullptr) impl_->gen_ai->Observe(request);
}

int64_t ServerMetrics::requests() const {
  double all = 0.0;
  for (const prometheus::Counter* outcome : impl_->outcomes) all += outcome->Value();
  return static_cast<int64_t>(all);
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
  impl_->live_first_token->Observe(elapsed);
}

void ServerMetrics::CountPromptTokens(KvSource source, int64_t tokens) {
  impl_->prompt_tokens[static_cast<size_t>(source)]->Increment(
      static_cast<double>(tokens));
}

void ServerMetrics::SetWaiting(Priority priority, int64_t requests) {
  impl_->waiting[static_cast<size_t>(priority)]->Set(static_cast<double>(requests));
}

void ServerMetrics::SetKvPageBytes(int64_t bytes) { impl_->kv_page_bytes = bytes; }

void ServerMetrics::SetMemory(size_t row, const MemoryLedger::Account& live,
                              bool leak_suspected) {
  RENGA_CHECK(row < kMemoryRows);
  const Impl::MemoryRow& gauges = impl_->memory[row];
  gauges.bytes->Set(static_cast<double>(live.bytes));
  if (gauges.buffers != nullptr) gauges.buffers->Set(static_cast<double>(live.buffers));
  gauges.leak_suspected->Set(leak_suspected ? 1.0 : 0.0);
}

void ServerMetrics::SetGpu(const GpuFigures& figures) { impl_->device.Set(figures); }

void Counter::Increment(double by) {
  static_cast<prometheus::Counter*>(metric_)->Increment(by);
}

void Gauge::Set(double value) { static_cast<prometheus::Gauge*>(metric_)->Set(value); }

void Histogram::Observe(double value) {
  static_cast<prometheus::Histogram*>(metric_)->Observe(value);
}

void Histogram::Observe(Duration value) {
  Observe(std::chrono::duration<double>(value).count());
  if (live_ != nullptr) live_->Observe(value);
}

}  // namespace renga
