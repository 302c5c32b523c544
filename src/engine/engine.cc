// The loop, the step border and admission. The step itself: engine_step.cc.

#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "batching/admission_forecast.h"

namespace renga {
namespace {

// Logit rows that a step has at least: a prompt whose log-probabilities are wanted
// advances by that much.
constexpr int32_t kMinLogitRows = 64;
// Between two looks at the gauges of an idle engine, until they have come to rest.
constexpr Duration kIdleLook = std::chrono::seconds(1);
constexpr Duration kLeastRetry = std::chrono::milliseconds(1);

// The lower settings may not contradict the others: every running sequence can decode in
// one step.
int32_t MaxStepTokens(const SchedulerSettings& settings) {
  return std::max(settings.max_step_tokens, settings.max_sequences);
}

BatchPolicy PolicyOf(const SchedulerSettings& settings) {
  const StatusOr<BatchPolicy> policy = ParseBatchPolicy(settings.policy);
  return policy.ok() ? *policy : BatchPolicy::kWindow;
}

// How long company may be waited for.
Duration WindowOf(const SchedulerSettings& settings) {
  if (PolicyOf(settings) == BatchPolicy::kContinuous) return Duration{};
  return std::chrono::milliseconds(settings.window_ms);
}

BatchWindowOptions WindowOptions(const SchedulerSettings& settings) {
  return {.policy = PolicyOf(settings),
          .window = std::chrono::milliseconds(settings.window_ms),
          .queue_threshold = settings.queue_threshold,
          .leave_when_idle = settings.leave_when_idle,
          .max_batch = settings.max_batch,
          .max_sequences = settings.max_sequences,
          .aging = std::chrono::milliseconds(settings.aging_ms),
          .tenant_quantum_tokens = settings.tenant_quantum_tokens};
}

SchedulerLimits StepLimits(const SchedulerSettings& settings,
                           const BackendLimits& limits) {
  return {.max_sequences = limits.max_sequences,
          .prefill_slice_tokens = settings.prefill_slice_tokens,
          .decode_stall = std::chrono::milliseconds(settings.max_decode_stall_ms),
          .max_step_tokens = limits.max_rows,
          .max_logit_rows = limits.max_logit_rows};
}

// The window knows each sequence by a number of its own: the choices of one request may
// wait apart.
RequestId WindowId(const Sequence& sequence) { return RequestId{sequence.age()}; }

int64_t Milliseconds(Duration duration) {
  return std::chrono::ceil<std::chrono::milliseconds>(duration).count();
}

}  // namespace

BackendLimits EngineBackendLimits(const EngineOptions& options) {
  return {.max_rows = MaxStepTokens(options.scheduler),
          .max_logit_rows = std::max(options.scheduler.max_sequences, kMinLogitRows),
          .max_sequences = options.scheduler.max_sequences,
          .max_pages = options.pages};
}

Engine::Engine(const EngineOptions& options, Transformer& transformer, WaitQueue& queue,
               SnapshotBoard& board, ServerMetrics& metrics, const Clock& clock)
    : settings_(options.scheduler),
      limits_(EngineBackendLimits(options)),
      request_limits_{.context = transformer.config().context_length,
                      .vocab = transformer.config().graph.vocab,
                      .pages = options.pages,
                      .max_sequences = options.scheduler.max_sequences},
      transformer_(transformer),
      queue_(queue),
      board_(board),
      metrics_(metrics),
      clock_(clock),
      store_(options.pages, limits_.max_sequences, options.prefix_cache,
             transformer.backend()),
      window_(WindowOptions(options.scheduler)),
      scheduler_(StepLimits(options.scheduler, limits_)),
      load_(clock.Now()),
      last_progress_(clock.Now()),
      last_look_(clock.Now()),
      input_(limits_) {
  // Stalled ones beside as many that run.
  const size_t sequences = 2 * static_cast<size_t>(limits_.max_sequences);
  running_.reserve(sequences);
  views_.reserve(sequences);
  chosen_.reserve(sequences);
  planned_.reserve(sequences);
  counting_.reserve(sequences);
  ended_.reserve(sequences);
  plan_.rows.reserve(sequences);
  plan_.preempted.reserve(sequences);
  token_logprob_.top.reserve(kMaxTopLogprobs);
  slices_.reserve(sequences);
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
      last_step_end_.reset();
      Publish();
      until = NextWake();
    }
    WaitQueue::Mail mail = queue_.Take(until);
    const bool closed = mail.closed;
    const TimePoint looked = std::exchange(last_look_, clock_.Now());
    ReadMail(std::move(mail), idle ? Duration{} : last_look_ - looked);
    if (const std::optional<Status> why = StopRequested()) {
      EndAll(*why, FinishReason::kCancelled);
      return;
    }
    const TimePoint now = clock_.Now();
    EndExpired(now);
    Admit(now);
    const bool computes = CanCompute();
    if (idle && computes) {
      // Seen as busy before the first step: that one too may never end.
      last_progress_ = now;
      Publish();
    }
    if (computes) Step();
    idle = !computes && ended_.empty();  // What ended has left room for who waits.
    ended_.clear();
    if (failed_in_a_row_ >= kMaxFailedSteps) {
      EndAll(Unavailable("the device does not answer"), FinishReason::kNone);
      return;
    }
    if (closed && requests_.empty()) {
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
  ReadMail(queue_.Take(TimePoint{}), Duration{});
  while (!requests_.empty()) CancelWith(*requests_.begin()->second, why, reason);
  ended_.clear();
  Publish();
}

// ---- Step border: mail, cancels, deadlines -------------------------------------------

// `age`: what is in it has waited no longer.
void Engine::ReadMail(WaitQueue::Mail mail, Duration age) {
  for (const auto& done : mail.flushes) done(store_.Flush());
  for (EngineRequest& request : mail.requests) Accept(std::move(request));
  for (const RequestId id : mail.resumes) Resume(id);
  for (const RequestId id : mail.cancels) Cancel(id, age);
}

void Engine::Accept(EngineRequest request) {
  RENGA_CHECK(request.sink != nullptr);
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  Status status = CheckRequest(request);
  if (!status.ok()) return Refuse(*request.sink, prompt, std::move(status));
  const int64_t room = request_limits_.context - prompt;
  if (request.max_tokens > room) {
    request.max_tokens = room;
    request.max_tokens_given = false;
  }
  const TimePoint now = clock_.Now();
  auto group = std::make_unique<RequestGroup>(std::move(request), next_age_, now);
  Sequence& first = group->first();
  const PrefixCache::Length cached = store_.Find(first);
  status = CheckDeadline(group->request(), prompt - cached.tokens, now);
  if (!status.ok()) return Refuse(group->sink(), prompt, std::move(status));
  next_age_ += static_cast<uint64_t>(group->request().n);
  if (group->request().counted) load_.NoteTaken(prompt, cached.tokens);
  window_.Add(WindowEntry(first, cached));
  waiting_.emplace(WindowId(first), &first);
  request_bytes_ += group->reserved_bytes();
  requests_.emplace(group->id(), std::move(group));
}

void Engine::Refuse(TokenSink& sink, int64_t prompt_tokens, Status status) {
  queue_.Release(1, prompt_tokens);
  Completion refused;
  refused.status = std::move(status);
  refused.usage.prompt_tokens = prompt_tokens;
  sink.OnDone(refused);
}

Status Engine::CheckRequest(const EngineRequest& request) const {
  if (requests_.contains(request.id)) return Internal("a request id was used twice");
  return CheckEngineRequest(request, request_limits_);
}

// A deadline that has passed already is EndExpired's.
Status Engine::CheckDeadline(const EngineRequest& request, int64_t uncached,
                             TimePoint now) const {
  if (!request.counted) return OkStatus();
  // See GenerationServiceImpl::CheckTime.
  if (running_.empty() && window_.size() == 0) return OkStatus();
  const int64_t assumed = request.assumed_uncached;
  if (assumed >= 0 && uncached <= assumed + kPageTokens) return OkStatus();
  std::optional<TimePoint> latest = request.deadline;
  if (latest && *latest <= now) return OkStatus();
  if (request.first_token_limit > Duration{}) {
    const TimePoint limit = request.arrival + request.first_token_limit;
    latest = latest ? std::min(*latest, limit) : limit;
  }
  if (!latest) return OkStatus();
  const Duration predicted = PredictFirstToken(
      snapshot_, {.requests = window_.size(), .tokens = window_.waiting_tokens()},
      WindowOf(settings_), uncached);
  const Duration late = now + predicted - *latest;
  if (predicted == Duration{} || late <= Duration{}) return OkStatus();
  return ResourceExhausted("the first token is predicted in " +
                           std::to_string(Milliseconds(predicted)) +
                           " ms, after the deadline")
      .WithRetryAfter(std::max(late, kLeastRetry));
}

void Engine::Resume(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || !found->second->paused) return;
  RequestGroup& group = *found->second;
  group.paused = false;
  const TimePoint now = clock_.Now();
  metrics_.flight_recorder.Span(group.request().ticket, FlightEvent::kPaused,
                                group.paused_at, now);
  for (Sequence& choice : group.choices()) {
    choice.last_token = now;  // The reader's pause is no gap of ours.
    if (choice.place != SequencePlace::kParked) continue;
    --parked_;
    WaitAgain(choice);
  }
}

void Engine::Cancel(RequestId id, Duration age) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;  // It has ended: the two crossed on the way.
  CancelWith(*found->second, Cancelled("the request was cancelled"),
             FinishReason::kCancelled);
  metrics_.cancel_latency.Observe(age);
}

void Engine::EndExpired(TimePoint now) {
  for (auto it = requests_.begin(); it != requests_.end();) {
    RequestGroup& group = *(it++)->second;  // Ending it erases its own entry only.
    if (group.request().deadline && *group.request().deadline <= now) {
      CancelWith(group, DeadlineExceeded("the deadline passed before the answer ended"),
                 FinishReason::kCancelled);
    }
  }
}

std::optional<TimePoint> Engine::NextWake() const {
  std::optional<TimePoint> wake = window_.NextDeadline();
  const auto earlier = [&wake](TimePoint time) {
    if (!wake || time < *wake) wake = time;
  };
  for (const auto& [id, group] : requests_) {
    if (group->request().deadline) earlier(*group->request().deadline);
  }
  if (snapshot_.busy_share > 0.0) earlier(last_progress_ + kIdleLook);
  return wake;
}

// ---- Admission -----------------------------------------------------------------------

bool Engine::CanCompute() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const Sequence* sequence) { return !sequence->group().paused; });
}

EngineState Engine::State() {
  int64_t active = 0;  // Places, those of choices that are not forked yet included.
  int64_t promised = 0;
  int64_t stalled = parked_;
  counting_.clear();
  for (const Sequence* sequence : running_) {
    if (sequence->group().paused) {
      stalled += 1;
      continue;
    }
    const int64_t unforked = sequence->group().unforked();
    active += 1 + unforked;
    promised += sequence->promised_pages() + unforked;
    counting_.push_back(sequence);
  }
  int64_t evictable = store_.cached();
  if (stalled > parked_) evictable += store_.used() - store_.CountDistinct(counting_);
  const int64_t beyond = std::max<int64_t>(0, stalled - settings_.max_sequences);
  return {.busy = active > 0,
          .free_pages = store_.free() - promised,
          .evictable_pages = evictable,
          .running = static_cast<int32_t>(active + beyond)};
}

WindowRequest Engine::WindowEntry(const Sequence& sequence,
                                  const PrefixCache::Length& cached) const {
  const EngineRequest& request = sequence.request();
  const int32_t unforked = sequence.group().unforked();
  // What needs more than there is runs alone, its choices one after the other.
  const int64_t pages = PagesFor(sequence.known_tokens()) - cached.held_pages + unforked;
  return {.id = WindowId(sequence),
          .uncached_tokens = sequence.known_tokens() - cached.tokens,
          .pages = std::min(pages, store_.total()),
          .sequences = 1 + unforked,
          .arrival = request.arrival,
          .priority = request.priority,
          .tenant = request.tenant};
}

// Back to the front of the queue, holding nothing.
void Engine::WaitAgain(Sequence& sequence) {
  sequence.place = SequencePlace::kWaiting;
  window_.AddPreempted(WindowEntry(sequence, store_.Find(sequence)));
  waiting_.emplace(WindowId(sequence), &sequence);
}

void Engine::LeaveWindow(const Sequence& sequence) {
  RENGA_CHECK(window_.Remove(WindowId(sequence)));
  waiting_.erase(WindowId(sequence));
}

void Engine::Park(Sequence& sequence) {
  sequence.place = SequencePlace::kParked;
  ++parked_;
}

void Engine::Admit(TimePoint now) {
  if (window_.size() == 0) return;
  chosen_.clear();
  for (const BatchWindow::Batch& batch : window_.TakeReady(now, State())) {
    ++batches_;
    for (const RequestId id : batch) {
      const auto node = waiting_.extract(id);
      Sequence& sequence = *node.mapped();
      sequence.batch = batches_;
      EnterRunning(sequence);
      chosen_.push_back(&sequence);
    }
  }
  // Only now, as a request that fails here may end another one of these.
  for (Sequence* sequence : chosen_) {
    if (sequence->place != SequencePlace::kRunning) continue;
    RequestGroup& group = sequence->group();
    if (!group.admitted) {
      AdmitFirstTime(group, now);
    } else {
      metrics_.flight_recorder.Mark(group.request().ticket, FlightEvent::kReadmitted,
                                    now);
    }
    TakeCached(*sequence);
  }
}

void Engine::AdmitFirstTime(RequestGroup& group, TimePoint now) {
  group.admitted = true;
  group.admitted_at = now;
  metrics_.flight_recorder.Span(group.request().ticket, FlightEvent::kQueue,
                                group.request().queued, now);
  group.Reserve();
  queue_.Release(1, group.prompt_tokens());
  if (!group.request().counted) return;
  const Duration window = std::chrono::milliseconds(settings_.window_ms);
  metrics_.batch_window_wait.Observe(std::min(window, now - group.taken));
}

void Engine::TakeCached(Sequence& sequence) {
  const Status status = store_.Take(sequence);
  const int64_t wasted = std::exchange(sequence.lost, 0) - sequence.computed();
  if (wasted > 0) {
    metrics_.wasted_tokens_preempted.Increment(static_cast<double>(wasted));
  }
  if (status.ok()) return;
  NoteFailure(status);
  LogError("page copy failed", {{"code", StatusCodeName(status.code())},
                                {"message", std::string_view(status.message())}});
  FailOnDevice(sequence.group(), status);
}

void Engine::EnterRunning(Sequence& sequence) {
  sequence.place = SequencePlace::kRunning;
  running_.push_back(&sequence);
  if (++sequence.group().running == 1) ++running_requests_;
}

void Engine::LeaveRunning(Sequence& sequence) {
  running_.erase(std::find(running_.begin(), running_.end(), &sequence));
  if (--sequence.group().running == 0) --running_requests_;
}

}  // namespace renga
