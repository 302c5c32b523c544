#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "engine/sampler.h"

namespace renga {
namespace {

double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// The lower settings may not contradict the others: every running sequence can decode in
// one step.
int32_t MaxStepTokens(const SchedulerSettings& settings) {
  return std::max(settings.max_step_tokens, settings.max_sequences);
}

BatchWindowOptions WindowOptions(const SchedulerSettings& settings) {
  const StatusOr<BatchPolicy> policy = ParseBatchPolicy(settings.policy);
  return {.policy = policy.ok() ? *policy : BatchPolicy::kWindow,
          .window = std::chrono::milliseconds(settings.window_ms),
          .queue_threshold = settings.queue_threshold,
          .leave_when_idle = settings.leave_when_idle,
          .max_batch = settings.max_batch,
          .max_sequences = settings.max_sequences,
          .aging = std::chrono::milliseconds(settings.aging_ms),
          .tenant_quantum_tokens = settings.tenant_quantum_tokens};
}

SchedulerLimits StepLimits(const SchedulerSettings& settings) {
  return {.max_sequences = settings.max_sequences,
          .prefill_slice_tokens = settings.prefill_slice_tokens,
          .decode_stall = std::chrono::milliseconds(settings.max_decode_stall_ms),
          .max_step_tokens = MaxStepTokens(settings),
          .max_logit_rows = settings.max_sequences};
}

WindowRequest WindowEntry(const Sequence& sequence) {
  return {.id = sequence.id(),
          .uncached_tokens = sequence.uncomputed(),
          .pages = PagesFor(sequence.uncomputed()),
          .arrival = sequence.request().arrival,
          .priority = sequence.request().priority,
          .tenant = sequence.request().tenant};
}

CancelStage StageOf(const Sequence& sequence) {
  if (sequence.generated() > 0) return CancelStage::kDecode;
  return sequence.first_step ? CancelStage::kPrefill : CancelStage::kQueued;
}

}  // namespace

BackendLimits EngineBackendLimits(const EngineOptions& options) {
  return {.max_rows = MaxStepTokens(options.scheduler),
          .max_logit_rows = options.scheduler.max_sequences,
          .max_sequences = options.scheduler.max_sequences,
          .max_pages = options.pages};
}

Engine::Engine(const EngineOptions& options, Transformer& transformer, WaitQueue& queue,
               SnapshotBoard& board, ServerMetrics& metrics, const Clock& clock)
    : settings_(options.scheduler),
      context_(transformer.config().context_length),
      vocab_(transformer.config().graph.vocab),
      transformer_(transformer),
      queue_(queue),
      board_(board),
      metrics_(metrics),
      clock_(clock),
      pool_(options.pages),
      window_(WindowOptions(options.scheduler)),
      scheduler_(StepLimits(options.scheduler)),
      last_progress_(clock.Now()) {
  const BackendLimits limits = EngineBackendLimits(options);
  const size_t sequences = static_cast<size_t>(limits.max_sequences);
  running_.reserve(2 * sequences);
  views_.reserve(2 * sequences);
  plan_.rows.reserve(sequences);
  step_.reserve(sequences);
  step_tokens_.reserve(static_cast<size_t>(limits.max_rows));
  step_rows_.reserve(sequences);
  logit_rows_.reserve(sequences);
  specs_.reserve(sequences);
  results_.reserve(sequences);
  Publish();
}

Engine::~Engine() = default;

// ---- The loop ------------------------------------------------------------------------

void Engine::Run() {
  bool idle = true;  // The last look at the work found nothing to compute.
  while (true) {
    std::optional<TimePoint> until = TimePoint{};  // Long past: do not wait.
    if (idle) {
      last_progress_ = clock_.Now();
      Publish();
      until = NextWake();
    }
    WaitQueue::Mail mail = queue_.Take(until);
    const bool closed = mail.closed;
    ReadMail(std::move(mail));
    if (const std::optional<Status> why = StopRequested()) {
      EndAll(*why, FinishReason::kCancelled);
      return;
    }
    const TimePoint now = clock_.Now();
    EndExpired(now);
    Admit(now);
    const bool was_idle = std::exchange(idle, !CanCompute());
    if (was_idle && !idle) {
      // Seen as busy before the first step: that one too may never end.
      last_progress_ = now;
      Publish();
    }
    if (!idle) Step();
    if (failed_in_a_row_ >= kMaxFailedSteps) {
      EndAll(Unavailable("the device does not answer"), FinishReason::kNone);
      return;
    }
    if (closed && sequences_.empty()) {
      Publish();
      return;
    }
  }
}

void Engine::Stop(Status why) {
  {
    MutexLock lock(stop_mutex_);
    if (!stop_) stop_ = why.ok() ? Unavailable("the server stops") : std::move(why);
  }
  queue_.Close();
  queue_.Wake();
}

std::optional<Status> Engine::StopRequested() const {
  MutexLock lock(stop_mutex_);
  return stop_;
}

void Engine::EndAll(const Status& why, FinishReason reason) {
  queue_.Close();  // From here on nothing can enter, so one more look gets the rest.
  ReadMail(queue_.Take(TimePoint{}));
  while (!sequences_.empty()) CancelWith(*sequences_.begin()->second, why, reason);
  Publish();
}

// ---- Step border: mail, cancels, deadlines -------------------------------------------

void Engine::ReadMail(WaitQueue::Mail mail) {
  for (EngineRequest& request : mail.requests) Accept(std::move(request));
  for (const RequestId id : mail.resumes) Resume(id);
  for (const RequestId id : mail.cancels) Cancel(id);
}

void Engine::Accept(EngineRequest request) {
  RENGA_CHECK(request.sink != nullptr);
  const Status status = CheckRequest(request);
  if (!status.ok()) {
    queue_.Release(1, static_cast<int64_t>(request.prompt.size()));
    Completion refused;
    refused.status = status;
    refused.usage.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    request.sink->OnDone(refused);
    return;
  }
  const int64_t room = context_ - static_cast<int64_t>(request.prompt.size());
  if (request.max_tokens > room) {
    request.max_tokens = room;
    request.max_tokens_given = false;
  }
  auto sequence = std::make_unique<Sequence>(std::move(request), accepted_++);
  sequence->taken = clock_.Now();
  window_.Add(WindowEntry(*sequence));
  sequences_.emplace(sequence->id(), std::move(sequence));
}

// The service has checked all this with friendlier words; nothing that enters the queue
// may end the process or block the others.
Status Engine::CheckRequest(const EngineRequest& request) const {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  if (sequences_.contains(request.id)) return Internal("a request id was used twice");
  if (prompt == 0) return InvalidArgument("prompt", "has no tokens");
  if (prompt + 1 > context_) {
    return InvalidArgument(
        "prompt", "has " + std::to_string(prompt) + " tokens; the context holds " +
                      std::to_string(context_) + " with at least one of the answer");
  }
  if (PagesFor(prompt) > pool_.total()) {
    return InvalidArgument("prompt", "needs " + std::to_string(PagesFor(prompt)) +
                                         " KV pages; the pool has " +
                                         std::to_string(pool_.total()));
  }
  if (request.max_tokens < 1) return InvalidArgument("max_tokens", "must be at least 1");
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= vocab_) {
      return InvalidArgument("prompt", "token " + std::to_string(token) +
                                           " is outside the vocabulary of " +
                                           std::to_string(vocab_));
    }
  }
  return OkStatus();
}

void Engine::Resume(RequestId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || !found->second->paused) return;
  Sequence& sequence = *found->second;
  sequence.paused = false;
  sequence.last_token = clock_.Now();  // The reader's pause is no gap of ours.
  if (sequence.place == SequencePlace::kParked) {
    --parked_;
    sequence.place = SequencePlace::kWaiting;
    window_.AddPreempted(WindowEntry(sequence));
  }
}

void Engine::Cancel(RequestId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;  // It has ended: the two crossed on the way.
  CancelWith(*found->second, Cancelled("the request was cancelled"),
             FinishReason::kCancelled);
}

void Engine::EndExpired(TimePoint now) {
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    Sequence& sequence = *(it++)->second;  // Ending it erases its own entry only.
    if (sequence.request().deadline && *sequence.request().deadline <= now) {
      CancelWith(sequence,
                 DeadlineExceeded("the deadline passed before the answer ended"),
                 FinishReason::kCancelled);
    }
  }
}

std::optional<TimePoint> Engine::NextWake() const {
  std::optional<TimePoint> wake = window_.NextDeadline();
  for (const auto& [id, sequence] : sequences_) {
    const std::optional<TimePoint>& deadline = sequence->request().deadline;
    if (deadline && (!wake || *deadline < *wake)) wake = deadline;
  }
  return wake;
}

// ---- Admission -----------------------------------------------------------------------

bool Engine::CanCompute() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const Sequence* sequence) { return !sequence->paused; });
}

EngineState Engine::State() const {
  int64_t active = 0;
  int64_t promised = 0;
  int64_t stalled = parked_;
  int64_t evictable = 0;
  for (const Sequence* sequence : running_) {
    if (sequence->paused) {
      stalled += 1;
      evictable += sequence->pages();
    } else {
      active += 1;
      promised += sequence->promised_pages();
    }
  }
  const int64_t beyond = std::max<int64_t>(0, stalled - settings_.max_sequences);
  return {.busy = active > 0,
          .free_pages = pool_.free() - promised,
          .evictable_pages = evictable,
          .running = static_cast<int32_t>(active + beyond)};
}

void Engine::Admit(TimePoint now) {
  if (window_.size() == 0) return;
  for (const BatchWindow::Batch& batch : window_.TakeReady(now, State())) {
    ++batches_;
    for (const RequestId id : batch) {
      Sequence& sequence = *sequences_.at(id);
      sequence.place = SequencePlace::kRunning;
      sequence.batch = batches_;
      running_.push_back(&sequence);
      if (std::exchange(sequence.admitted_before, true)) continue;
      sequence.Reserve();
      queue_.Release(1, sequence.prompt_tokens());
      const Duration window = std::chrono::milliseconds(settings_.window_ms);
      metrics_.batch_window_wait.Observe(std::min(window, now - sequence.taken));
    }
  }
}

// ---- One step ------------------------------------------------------------------------

void Engine::Step() {
  const TimePoint start = clock_.Now();
  PlanStep();
  if (step_.empty()) return;  // The one that could run has filled the pool and ended.
  for (const StepRows& rows : step_) {
    if (!rows.sequence->first_step) rows.sequence->first_step = start;
  }
  const Status status = RunStep();
  const TimePoint end = clock_.Now();
  if (status.ok()) {
    failed_in_a_row_ = 0;
    ObserveStep(start, end);
    Deliver(end);
  } else {
    ++failed_in_a_row_;
    FailStep(status);
  }
  Publish();
}

// Plans the step, makes room for it and collects its rows in `step_`.
void Engine::PlanStep() {
  views_.clear();
  for (const Sequence* sequence : running_) views_.push_back(sequence->View());
  scheduler_.Plan(views_, pool_.free(), cost_, plan_);

  step_.clear();
  for (const PlannedRows& planned : plan_.rows) {
    step_.push_back({.sequence = running_[static_cast<size_t>(planned.sequence)],
                     .rows = planned.rows,
                     .samples = planned.samples,
                     .decodes = planned.decodes});
  }
  // From the highest index down, so that leaving `running_` moves none that is still due.
  std::vector<int32_t>& preempted = plan_.preempted;
  std::sort(preempted.begin(), preempted.end(), std::greater<>());
  if (!preempted.empty()) window_.NotePressure(clock_.Now());
  std::vector<int32_t>& full = plan_.pool_full;
  RENGA_CHECK(full.size() <= 1);
  Sequence* full_one = full.empty() ? nullptr : running_[static_cast<size_t>(full[0])];
  for (const int32_t index : preempted) Preempt(*running_[static_cast<size_t>(index)]);
  if (full_one != nullptr) {
    Finish(*full_one, {.reason = FinishReason::kLength, .cause = StopCause::kPool});
  }
}

void Engine::Preempt(Sequence& sequence) {
  metrics_.preemptions.Increment();
  metrics_.wasted_tokens_preempted.Increment(static_cast<double>(sequence.computed()));
  running_.erase(std::find(running_.begin(), running_.end(), &sequence));
  sequence.DropPages();
  if (PagesFor(sequence.uncomputed()) > pool_.total()) {
    sequence.place = SequencePlace::kParked;
    ++parked_;
    Finish(sequence, {.reason = FinishReason::kLength, .cause = StopCause::kPool});
    return;
  }
  if (sequence.paused) {
    sequence.place = SequencePlace::kParked;
    ++parked_;
    return;
  }
  sequence.place = SequencePlace::kWaiting;
  window_.AddPreempted(WindowEntry(sequence));
}

// Runs the rows of `step_` and fills `results_`, one per sampling entry, in their order.
Status Engine::RunStep() {
  step_tokens_.clear();
  step_rows_.clear();
  logit_rows_.clear();
  specs_.clear();
  for (const StepRows& rows : step_) {
    Sequence& sequence = *rows.sequence;
    const int64_t first = sequence.computed();
    RENGA_CHECK(sequence.GrowTo(first + rows.rows, pool_));  // The plan made room.
    step_rows_.push_back({.first_row = static_cast<int32_t>(step_tokens_.size()),
                          .rows = rows.rows,
                          .first_position = static_cast<int32_t>(first),
                          .pages = sequence.page_table()});
    const auto tokens = sequence.tokens().subspan(static_cast<size_t>(first),
                                                  static_cast<size_t>(rows.rows));
    step_tokens_.insert(step_tokens_.end(), tokens.begin(), tokens.end());
    if (!rows.samples) continue;
    specs_.push_back(MakeSampleSpec(sequence, static_cast<int32_t>(logit_rows_.size())));
    logit_rows_.push_back(static_cast<int32_t>(step_tokens_.size()) - 1);
  }
  results_.assign(specs_.size(), SampleResult());
  RENGA_RETURN_IF_ERROR(transformer_.Forward(
      {.tokens = step_tokens_, .sequences = step_rows_, .logit_rows = logit_rows_}));
  if (specs_.empty()) return OkStatus();
  return transformer_.backend().Sample(specs_, results_);
}

// ---- Delivery ------------------------------------------------------------------------

void Engine::Deliver(TimePoint now) {
  size_t next_result = 0;
  for (const StepRows& rows : step_) {
    rows.sequence->Advance(rows.rows);
    if (rows.samples) DeliverToken(*rows.sequence, results_[next_result++], now);
  }
}

void Engine::DeliverToken(Sequence& sequence, const SampleResult& result, TimePoint now) {
  const Status status = CheckSample(result, vocab_);
  if (!status.ok()) return Fail(sequence, status);
  NoteToken(sequence, now);
  sequence.Append(result.token);
  if (!std::exchange(sequence.started, true)) {
    sequence.sink().OnStart({.prompt_tokens = sequence.prompt_tokens(),
                             .cached_tokens = 0,
                             .queue = *sequence.first_step - sequence.request().arrival,
                             .prefill = now - *sequence.first_step});
  }
  const StopDecision at_token = StopAtToken(sequence.request(), result.token);
  if (at_token.stops()) return Finish(sequence, at_token);

  const SinkVerdict verdict = sequence.sink().OnToken(
      {.choice = 0, .tokens = sequence.tokens().last(1), .text = {}});
  if (verdict == SinkVerdict::kStop) {
    return Finish(sequence, {.reason = FinishReason::kStop, .cause = StopCause::kNone});
  }
  const StopDecision at_length = StopAtLength(sequence.request(), sequence.generated());
  if (at_length.stops()) return Finish(sequence, at_length);
  sequence.paused = verdict == SinkVerdict::kPause;
}

void Engine::NoteToken(Sequence& sequence, TimePoint now) {
  metrics_.generated_tokens.Increment();
  if (!sequence.first_token) {
    sequence.first_token = now;
    metrics_.CountPromptTokens(KvSource::kComputed, sequence.prompt_tokens());
    metrics_.ObserveFirstToken(KvSource::kComputed, now - sequence.request().arrival);
  } else {
    const Duration gap = now - sequence.last_token;
    sequence.max_gap = std::max(sequence.max_gap, gap);
    metrics_.inter_token_latency.Observe(gap);
  }
  sequence.last_token = now;
}

void Engine::FailStep(const Status& status) {
  LogError("step failed", {{"code", StatusCodeName(status.code())},
                           {"message", std::string_view(status.message())},
                           {"sequences", step_.size()}});
  const Status for_client = status.code() == StatusCode::kUnavailable
                                ? Unavailable("the device is not available")
                                : Internal("the device failed a step");
  for (const StepRows& rows : step_) Fail(*rows.sequence, for_client);
}

// ---- Ends ----------------------------------------------------------------------------

void Engine::Finish(Sequence& sequence, const StopDecision& decision) {
  Completion completion;
  completion.finish_reason = decision.reason;
  completion.stop_cause = decision.cause;
  End(sequence, std::move(completion));
}

void Engine::Fail(Sequence& sequence, Status status) {
  Completion completion;
  completion.status = std::move(status);
  End(sequence, std::move(completion));
}

void Engine::CancelWith(Sequence& sequence, Status status, FinishReason reason) {
  metrics_.CountCancellation(StageOf(sequence));
  metrics_.wasted_tokens_cancelled.Increment(static_cast<double>(sequence.computed()));
  Completion completion;
  completion.status = std::move(status);
  completion.finish_reason = reason;
  End(sequence, std::move(completion));
}

void Engine::End(Sequence& sequence, Completion completion) {
  switch (sequence.place) {
    case SequencePlace::kRunning:
      running_.erase(std::find(running_.begin(), running_.end(), &sequence));
      break;
    case SequencePlace::kWaiting:
      RENGA_CHECK(window_.Remove(sequence.id()));
      break;
    case SequencePlace::kParked:
      --parked_;
      break;
  }
  if (!sequence.admitted_before) queue_.Release(1, sequence.prompt_tokens());
  sequence.DropPages();

  completion.usage = {.prompt_tokens = sequence.prompt_tokens(),
                      .cached_tokens = 0,
                      .completion_tokens = sequence.generated()};
  RequestTimings& timings = completion.timings;
  if (sequence.first_step) {
    timings.queue = *sequence.first_step - sequence.request().arrival;
  }
  if (sequence.first_token) {
    timings.prefill = *sequence.first_token - *sequence.first_step;
    timings.decode = sequence.last_token - *sequence.first_token;
    timings.max_gap = sequence.max_gap;
  }
  ObserveEnd(sequence, timings);
  const auto node = sequences_.extract(sequence.id());  // Lives until its sink was told.
  node.mapped()->sink().OnDone(completion);
}

void Engine::ObserveEnd(const Sequence& sequence, const RequestTimings& timings) {
  if (sequence.first_step) metrics_.request_queue.Observe(timings.queue);
  if (!sequence.first_token) return;
  metrics_.request_prefill.Observe(timings.prefill);
  metrics_.request_decode.Observe(timings.decode);
  if (sequence.generated() > 1) metrics_.request_max_gap.Observe(timings.max_gap);
}

// ---- For others to see ---------------------------------------------------------------

void Engine::ObserveStep(TimePoint start, TimePoint end) {
  ++steps_;
  last_progress_ = end;
  cost_.Add({.rows = plan_.total_rows}, end - start);
  const auto decodes = [](const StepRows& rows) { return rows.decodes; };
  StepPhase phase = StepPhase::kMixed;
  if (std::all_of(step_.begin(), step_.end(), decodes)) phase = StepPhase::kDecode;
  if (std::none_of(step_.begin(), step_.end(), decodes)) phase = StepPhase::kPrefill;
  metrics_.ObserveStep(phase, end - start);
  metrics_.steps.Increment();
  metrics_.engine_busy.Increment(Seconds(end - start));
  metrics_.batch_size.Observe(static_cast<double>(step_.size()));
  metrics_.batch_tokens.Observe(plan_.total_rows);
}

void Engine::Publish() {
  const auto unix_time = std::chrono::system_clock::now().time_since_epoch();
  metrics_.engine_last_progress.Set(std::chrono::duration<double>(unix_time).count());
  metrics_.requests_running.Set(static_cast<double>(running_.size()));
  metrics_.SetWaiting(Priority::kNormal, static_cast<int64_t>(sequences_.size()) -
                                             static_cast<int64_t>(running_.size()));
  metrics_.queue_tokens.Set(static_cast<double>(queue_.waiting_tokens()));
  metrics_.kv_pages_capacity.Set(static_cast<double>(pool_.total()));
  metrics_.kv_pages_used.Set(static_cast<double>(pool_.used()));
  board_.Publish({.last_progress = last_progress_,
                  // Not what waits for its reader: that is no lack of progress.
                  .busy = CanCompute() || window_.size() > 0,
                  .running = static_cast<int64_t>(running_.size()),
                  .waiting = window_.size(),
                  .waiting_tokens = window_.waiting_tokens(),
                  .steps = steps_,
                  .pages_total = pool_.total(),
                  .pages_free = pool_.free(),
                  .max_sequences = settings_.max_sequences,
                  .decode_step = cost_.Predict({.rows = 1}),
                  .full_rows = 1,
                  .full_step = cost_.Predict({.rows = 1})});
}

}  // namespace renga
