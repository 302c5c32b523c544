// Engine: the step loop. One thread runs it and owns every sequence, the KV pool, the
// BatchWindow and the backend.
//
// Each step: take mail, end what was cancelled or is late, admit, plan, run, sample,
// deliver. Between steps ("at a step border") nothing is in flight, so whatever ends
// there frees all it held at once.
//
// What a sink can rely on: OnStart (when the first token is known) before OnToken; end
// and stop tokens are counted, not delivered; a verdict is obeyed before the next step;
// exactly one OnDone per request that entered the queue, whatever happens. After kStop
// the completion says FinishReason::kStop and StopCause::kNone: the sink knows why it
// stopped.
//
// A paused sequence keeps its pages and takes part in no step until it is resumed. It
// holds up nobody: its pages count as free for admission (it is preempted when they are
// needed) and it holds no running place, as long as no more than max_sequences stall.
//
// When a step fails, the requests of that step fail with the device's code (UNAVAILABLE
// or INTERNAL) and the engine goes on with the others; after kMaxFailedSteps failures in
// a row the device is taken for lost: everything ends with UNAVAILABLE, the queue is
// closed and Run returns.
//
// Thread safety: Run on the engine thread; Stop from any thread.
// Invariants: a sequence is in `sequences_` from its mail until its OnDone; it is in
// `running_` exactly while place == kRunning, in `window_` exactly while kWaiting.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "batching/batch_window.h"
#include "batching/engine_snapshot.h"
#include "batching/wait_queue.h"
#include "engine/kv_pool.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_cost.h"
#include "engine/stop_rules.h"
#include "metrics/server_metrics.h"
#include "model/transformer.h"
#include "renga/clock.h"
#include "renga/config.h"

namespace renga {

struct EngineOptions {
  SchedulerSettings scheduler;  // Checked by app/: every number is positive.
  int64_t pages = 0;            // Of the backend's KV pool.
};

// What the backend must be configured for, so that every step of such an engine fits.
BackendLimits EngineBackendLimits(const EngineOptions& options);

class Engine {
 public:
  // The references must outlive the engine; `transformer`'s KV pool has `options.pages`.
  Engine(const EngineOptions& options, Transformer& transformer, WaitQueue& queue,
         SnapshotBoard& board, ServerMetrics& metrics, const Clock& clock);
  ~Engine();

  // The engine thread's body: returns when the queue is closed and everything has ended,
  // after Stop, or when the device is lost.
  void Run();

  // Closes the queue and ends everything at the next step border with `why`.
  void Stop(Status why) RENGA_EXCLUDES(stop_mutex_);

 private:
  static constexpr int kMaxFailedSteps = 3;

  // Some rows of a step.
  struct StepRows {
    Sequence* sequence = nullptr;
    int32_t rows = 0;
    bool samples = false;
    bool decodes = false;
  };

  // ---- Step border.
  void ReadMail(WaitQueue::Mail mail);
  void Accept(EngineRequest request);
  Status CheckRequest(const EngineRequest& request) const;
  void Resume(RequestId id);
  void Cancel(RequestId id);
  void EndExpired(TimePoint now);
  std::optional<TimePoint> NextWake() const;
  std::optional<Status> StopRequested() const RENGA_EXCLUDES(stop_mutex_);
  void EndAll(const Status& why, FinishReason reason);
  void Admit(TimePoint now);
  EngineState State() const;
  bool CanCompute() const;

  // ---- Step.
  void Step();
  void PlanStep();
  Status RunStep();
  void Deliver(TimePoint now);
  void DeliverToken(Sequence& sequence, const SampleResult& result, TimePoint now);
  void NoteToken(Sequence& sequence, TimePoint now);
  void FailStep(const Status& status);
  void Preempt(Sequence& sequence);

  // ---- Ends.
  void Finish(Sequence& sequence, const StopDecision& decision);
  void Fail(Sequence& sequence, Status status);
  void CancelWith(Sequence& sequence, Status status, FinishReason reason);
  void End(Sequence& sequence, Completion completion);
  void ObserveEnd(const Sequence& sequence, const RequestTimings& timings);

  // ---- For others to see.
  void ObserveStep(TimePoint start, TimePoint end);
  void Publish();

  const SchedulerSettings settings_;
  const int64_t context_;
  const int64_t vocab_;
  Transformer& transformer_;
  WaitQueue& queue_;
  SnapshotBoard& board_;
  ServerMetrics& metrics_;
  const Clock& clock_;

  KvPool pool_;  // Before the sequences: they give pages back to it.
  BatchWindow window_;
  Scheduler scheduler_;
  StepCost cost_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> running_;
  int64_t parked_ = 0;  // Sequences at SequencePlace::kParked.
  uint64_t accepted_ = 0;
  uint64_t batches_ = 0;
  int64_t steps_ = 0;
  int failed_in_a_row_ = 0;
  TimePoint last_progress_{};

  // ---- Of the step under way; sized once.
  StepPlan plan_;
  std::vector<SequenceView> views_;      // [running]
  std::vector<StepRows> step_;           // [sequences of the step]
  std::vector<TokenId> step_tokens_;     // [rows]
  std::vector<SequenceRows> step_rows_;  // [sequences of the step]
  std::vector<int32_t> logit_rows_;      // [logit rows]
  std::vector<SampleSpec> specs_;        // [logit rows]
  std::vector<SampleResult> results_;    // [logit rows]

  mutable Mutex stop_mutex_;
  std::optional<Status> stop_ RENGA_GUARDED_BY(stop_mutex_);
};

}  // namespace renga
