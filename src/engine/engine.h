// Engine: the step loop. One thread runs it and owns every sequence, the KV pages, the
// BatchWindow and the backend.
//
// Each round: take mail, end what was cancelled or is late, admit, plan, run, sample,
// deliver. Between steps ("at a step border") nothing is in flight, so whatever ends
// there frees all it held at once.
//
// What a sink can rely on: OnStart (when the prompt is computed) before OnToken; end and
// stop tokens are counted, not delivered; a verdict is obeyed before the next step;
// exactly one OnDone per request that entered the queue, whatever happens. After kStop
// the choice's end says FinishReason::kStop and StopCause::kNone: the sink knows why it
// stopped.
//
// Choices: a request with n > 1 holds n places from its admission on. Choice 0 computes
// the prompt, the first token of each is drawn from its last row, then the others are
// forked (RequestGroup). Each choice ends by itself; a failure, a cancel or a deadline
// ends all that are left. When pages run short choices are preempted like any sequence,
// down to one after the other.
//
// Pages: what is cached of a prompt is taken when it is admitted, and once more if
// another sequence has entered more of it before the first row was computed. See
// PageStore for what is entered when.
//
// A paused request keeps its pages and takes part in no step until it is resumed. It
// holds up nobody: its pages count as evictable for admission (it is preempted when they
// are needed) and it holds no running place, as long as no more than max_sequences stall.
// Its open page goes to a sequence of a step that finds no other (FreeOpenPages).
//
// When a step fails, the requests of that step fail with the device's code (UNAVAILABLE
// or INTERNAL) and the engine goes on with the others; so does a request whose page could
// not be copied. A device that says UNAVAILABLE is lost, and so is one after
// kMaxFailedSteps failures in a row: everything ends with UNAVAILABLE, the queue is
// closed and Run returns.
//
// Thread safety: Run on the engine thread; Stop from any thread.
// Invariants: a request is in `requests_` from its mail until its OnDone; a sequence is
// in `running_` exactly while it is at kRunning, in `window_` and `waiting_` exactly
// while it is at kWaiting; no sequence of a paused request is at kWaiting once it was
// admitted; what has ended stays in `ended_` until the round is over, so
// no pointer of the step under way dangles.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/memory_ledger.h"
#include "base/mutex.h"
#include "batching/batch_window.h"
#include "batching/engine_snapshot.h"
#include "batching/wait_queue.h"
#include "engine/load_meter.h"
#include "engine/page_store.h"
#include "engine/request_group.h"
#include "engine/request_limits.h"
#include "engine/scheduler.h"
#include "engine/step_cost.h"
#include "engine/step_input.h"
#include "metrics/server_metrics.h"
#include "model/transformer.h"
#include "renga/clock.h"
#include "renga/config.h"

namespace renga {

struct EngineOptions {
  SchedulerSettings scheduler;  // Checked by app/: every number is positive.
  int64_t pages = 0;            // Of the backend's KV pool.
  bool prefix_cache = true;     // Reuse keys and values of equal beginnings.
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

  // ---- Step border (engine.cc).
  void ReadMail(WaitQueue::Mail mail, Duration age);
  void Accept(EngineRequest request);
  Status CheckRequest(const EngineRequest& request) const;
  Status CheckDeadline(const EngineRequest& request, int64_t uncached,
                       TimePoint now) const;
  void Refuse(TokenSink& sink, int64_t prompt_tokens, Status status);
  void Resume(RequestId id);
  void Cancel(RequestId id, Duration age);
  void EndExpired(TimePoint now);
  std::optional<TimePoint> NextWake() const;
  std::optional<Status> StopRequested() const RENGA_EXCLUDES(stop_mutex_);
  void EndAll(const Status& why, FinishReason reason);

  // ---- Admission (engine.cc).
  void Admit(TimePoint now);
  void AdmitFirstTime(RequestGroup& group, TimePoint now);
  void TakeCached(Sequence& sequence);
  WindowRequest WindowEntry(const Sequence& sequence,
                            const PrefixCache::Length& cached) const;
  void WaitAgain(Sequence& sequence);
  void LeaveWindow(const Sequence& sequence);
  void Park(Sequence& sequence);
  EngineState State();
  bool CanCompute() const;
  void EnterRunning(Sequence& sequence);
  void LeaveRunning(Sequence& sequence);

  // ---- Step (engine_step.cc).
  void Step();
  void TakeWhatOthersEntered();
  void PlanStep();
  void FreeOpenPages();
  Sequence* RestingHolder() const;
  Status RunStep();
  void FailStep(const Status& status);
  // Counts a failure of the device towards its loss.
  void NoteFailure(const Status& status) {
    const bool lost = status.code() == StatusCode::kUnavailable;
    failed_in_a_row_ = lost ? kMaxFailedSteps : failed_in_a_row_ + 1;
  }
  void Preempt(Sequence& sequence);
  void Deliver(TimePoint now);
  bool DeliverScores(const StepEntry& entry);
  void DeliverPrompt(RequestGroup& group, const StepEntry& entry, TimePoint now);
  bool Fork(RequestGroup& group, size_t sampled);
  void DeliverToken(Sequence& sequence, const SampleResult& result, TimePoint now);
  void Start(RequestGroup& group, TimePoint now);
  void Pause(RequestGroup& group);
  void NoteToken(Sequence& sequence, TimePoint now);

  // ---- Ends (engine_step.cc).
  void EndChoice(Sequence& sequence, const StopDecision& decision);
  void Fail(RequestGroup& group, Status status);
  void FailOnDevice(RequestGroup& group, const Status& status);
  void CancelWith(RequestGroup& group, Status status, FinishReason reason);
  void End(RequestGroup& group, Completion completion);
  void Leave(Sequence& sequence);
  void ObserveEnd(const RequestGroup& group, const Completion& completion);

  // ---- For others to see (engine_report.cc).
  void ObserveStep(TimePoint start, TimePoint end);
  void RecordStep(TimePoint start, TimePoint end);
  void RecordEnd(const RequestGroup& group, TimePoint now);
  void NotePoolPressure();
  void Publish();
  void ShowGauges(TimePoint now);
  EngineSnapshot Snapshot(TimePoint now) const;
  void PredictSteps(EngineSnapshot& snapshot) const;

  const SchedulerSettings settings_;
  const BackendLimits limits_;
  const RequestLimits request_limits_;
  Transformer& transformer_;
  WaitQueue& queue_;
  SnapshotBoard& board_;
  ServerMetrics& metrics_;
  const Clock& clock_;

  PageStore store_;  // Before the requests: they give pages back to it.
  BatchWindow window_;
  Scheduler scheduler_;
  StepCost cost_;
  LoadMeter load_;
  std::unordered_map<RequestId, std::unique_ptr<RequestGroup>> requests_;
  std::vector<std::unique_ptr<RequestGroup>> ended_;  // In this round.
  std::unordered_map<RequestId, Sequence*> waiting_;  // By their ids in `window_`.
  std::vector<Sequence*> running_;
  int64_t running_requests_ = 0;  // With at least one sequence at kRunning.
  int64_t parked_ = 0;            // Sequences at kParked.
  int64_t request_bytes_ = 0;     // Booked by those in `requests_`.
  uint64_t next_age_ = 1;
  uint64_t batches_ = 0;
  int64_t steps_ = 0;
  int failed_in_a_row_ = 0;
  bool pool_was_low_ = false;
  int64_t evictions_shown_ = 0;
  int64_t cache_bytes_shown_ = 0;
  MemoryBooking cache_booking_;
  TimePoint last_progress_{};
  TimePoint last_look_{};                   // Into the mail.
  std::optional<TimePoint> last_step_end_;  // Absent: idle since.
  EngineSnapshot snapshot_;                 // The last one published.

  // ---- Of the step under way; sized once.
  StepPlan plan_;
  std::vector<SequenceView> views_;        // [running]
  std::vector<Sequence*> chosen_;          // Scratch.
  std::vector<Sequence*> planned_;         // Of `plan_`, in its order.
  std::vector<const Sequence*> counting_;  // Scratch.
  StepInput input_;
  TokenLogprob token_logprob_;  // What is being delivered.
  std::vector<FlightRecorder::Slice> slices_;

  mutable Mutex stop_mutex_;
  std::optional<Status> stop_ RENGA_GUARDED_BY(stop_mutex_);
};

}  // namespace renga
