// ServerMetrics: every metric of the server, in one place: name, unit, labels, buckets.
//
// The handles below hide prometheus-cpp, which only this module includes. Names have the
// prefix `renga_`, base units and the label `model`; never a request, session or user id.
//
// Beside the histograms, renga_latency_seconds_live{metric, q} has P50, P95 and P99 of
// the last minute, merged when somebody scrapes; 0 while the minute was empty.
//
// Thread safety: every method may be called from any thread; updates do not allocate. An
// update is one atomic add, of the three live latencies also a short lock.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/memory_ledger.h"
#include "metrics/flight_recorder.h"
#include "renga/clock.h"
#include "renga/gpu_figures.h"
#include "renga/request.h"
#include "renga/status.h"
#include "renga/types.h"

namespace renga {

class Counter {
 public:
  void Increment(double by = 1.0);

 private:
  friend class ServerMetrics;
  void* metric_ = nullptr;
};

class Gauge {
 public:
  void Set(double value);

 private:
  friend class ServerMetrics;
  void* metric_ = nullptr;
};

class LiveLatency;

class Histogram {
 public:
  void Observe(double value);
  void Observe(Duration value);

 private:
  friend class ServerMetrics;
  void* metric_ = nullptr;
  LiveLatency* live_ = nullptr;  // Fed as well; most have none.
};

enum class RequestOutcome { kOk, kError, kCancelled, kDeadline, kRejected };
enum class RejectReason {
  kQueueFull,
  kDeadline,  // Predicted that it can't be met.
  kDraining,
  kTooLong,
  kBadRequest,
  kNotReady,
  kUnauthenticated
};
enum class CancelStage { kQueued, kPrefill, kDecode, kWrite };
enum class StepPhase { kPrefill, kDecode, kMixed };

// Rows of the memory gauges: each MemoryPurpose, then the C++ heap and the process (RSS).
inline constexpr size_t kHeapRow = kMemoryPurposes;
inline constexpr size_t kProcessRow = kMemoryPurposes + 1;
inline constexpr size_t kMemoryRows = kMemoryPurposes + 2;
std::string_view MemoryRowName(size_t row);  // "weights", ..., "heap", "process"

// A request that has ended.
struct ServedRequest {
  RequestOutcome outcome = RequestOutcome::kOk;
  Duration elapsed{};      // Arrival to its end.
  Duration first_token{};  // Arrival to its first token; 0: there was none.
  Duration per_token{};    // Mean after the first; 0: there was no second.
  bool chat = false;       // Its prompt was a chat, not a text.
};

struct MetricsOptions {
  // Of the live latencies; outlives the metrics. nullptr: the system's.
  const Clock* clock = nullptr;
  bool otel_aliases = false;         // See GenAiMetrics.
  FlightRecorderOptions recorder{};  // See flight_recorder.
};

class ServerMetrics {
 public:
  // `backend`: "cpu/avx512"; shown by renga_build_info.
  ServerMetrics(const std::string& model, const std::string& backend,
                const MetricsOptions& options = {});
  ~ServerMetrics();

  // Prometheus text exposition of everything.
  std::string Serialize() const;

  // Exactly once per request that a loaded server answers, refusals of its form and while
  // it drains included; `elapsed`: arrival to its end.
  void CountRequest(const ServedRequest& request);
  void CountRequest(RequestOutcome outcome, Duration elapsed) {
    CountRequest({.outcome = outcome, .elapsed = elapsed});
  }
  // Requests that have ended.
  int64_t requests() const;
  void CountRejection(RejectReason reason);
  void CountCancellation(CancelStage stage);
  void ObserveStep(StepPhase phase, Duration elapsed);
  // Time to the first token, by where the prompt's keys and values came from.
  void ObserveFirstToken(KvSource source, Duration elapsed);
  void CountPromptTokens(KvSource source, int64_t tokens);
  void SetWaiting(Priority priority, int64_t requests);
  // Bytes of one page; with it, pages are exported in bytes as well.
  void SetKvPageBytes(int64_t bytes);
  // What the memory check saw; `buffers` count for the rows of a MemoryPurpose.
  void SetMemory(size_t row, const MemoryLedger::Account& live, bool leak_suspected);
  // What the GPU that computes says of itself (DeviceMetrics).
  void SetGpu(const GpuFigures& figures);

  FlightRecorder flight_recorder;

  // ---- Latency, seconds, per request unless said otherwise.
  Histogram inter_token_latency;  // ..._inter_token_latency_seconds: every gap
  Histogram request_max_gap;      // ..._request_max_gap_seconds
  Histogram request_queue;        // ..._request_queue_seconds
  Histogram
      batch_window_wait;      // ..._batch_window_wait_seconds: the part the window added
  Histogram request_prefill;  // ..._request_prefill_seconds
  Histogram request_decode;   // ..._request_decode_seconds
  Histogram tokenize;         // ..._tokenize_seconds: template and encoding
  Histogram time_per_output_token;  // ..._time_per_output_token_seconds: a mean
  Histogram stream_write;           // ..._stream_write_seconds: one message to its client
  Histogram cancel_latency;         // ..._cancel_latency_seconds: call to freed

  // ---- Load.
  Gauge requests_running;        // renga_requests_running
  Gauge queue_tokens;            // renga_queue_tokens
  Gauge kv_pages_capacity;       // renga_kv_pages_capacity
  Gauge kv_pages_used;           // renga_kv_pages_used: by sequences
  Gauge kv_pages_cached;         // renga_kv_pages_cached: by the prefix cache alone
  Histogram batch_size;          // renga_batch_size: sequences in a step
  Histogram batch_tokens;        // renga_batch_tokens: rows in a step
  Counter steps;                 // renga_engine_steps_total
  Counter engine_busy;           // renga_engine_busy_seconds_total
  Gauge engine_last_progress;    // renga_engine_last_progress_timestamp_seconds
  Counter preemptions;           // renga_preemptions_total
  Counter cache_evictions;       // renga_kv_cache_evictions_total: pages given up
  Gauge max_batch;               // renga_max_batch: the adaptive largest batch
  Gauge busy_share;              // renga_engine_busy_share: of the last seconds
  Histogram scheduler_overhead;  // renga_scheduler_overhead_seconds: between two steps
  Histogram step_prediction;     // renga_step_prediction_ratio: measured / predicted

  // ---- Tokens.
  Counter generated_tokens;         // renga_generated_tokens_total
  Counter wasted_tokens_cancelled;  // renga_wasted_tokens_total{cause="cancelled"}
  Counter wasted_tokens_preempted;  // renga_wasted_tokens_total{cause="preempted"}

  // ---- Process.
  Gauge ready;       // renga_ready: 1 while ready
  Gauge model_load;  // renga_model_load_seconds
  Gauge warm_up;     // renga_warm_up_seconds

 private:
  struct Impl;

  void AddLatencies();
  void AddLoad();
  void AddTokens();

  std::unique_ptr<Impl> impl_;
};

}  // namespace renga
