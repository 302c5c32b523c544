// One step of the engine, what it delivers, and how requests end.

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "engine/engine.h"
#include "engine/sampler.h"

namespace renga {
namespace {

CancelStage StageOf(const RequestGroup& group) {
  if (group.started) return CancelStage::kDecode;
  return group.first_step ? CancelStage::kPrefill : CancelStage::kQueued;
}

}  // namespace

// ---- One step ------------------------------------------------------------------------

void Engine::Step() {
  TakeWhatOthersEntered();
  PlanStep();
  if (plan_.rows.empty()) return;  // What could run has filled the pool and ended.
  const TimePoint start = clock_.Now();
  if (last_step_end_) metrics_.scheduler_overhead.Observe(start - *last_step_end_);
  for (const PlannedRows& planned : plan_.rows) {
    Sequence& sequence = *running_[static_cast<size_t>(planned.sequence)];
    RequestGroup& group = sequence.group();
    if (group.first_step) continue;
    group.first_step = start;
    group.cached_tokens = sequence.computed();
  }
  const Status status = RunStep();
  const TimePoint end = clock_.Now();
  last_step_end_ = end;
  if (status.ok()) {
    failed_in_a_row_ = 0;
    ObserveStep(start, end);
    Deliver(end);
  } else {
    NoteFailure(status);
    FailStep(status);
  }
  NotePoolPressure();
  Publish();
}

// A prompt that was admitted but has not computed a row profits from what was entered
// meanwhile.
void Engine::TakeWhatOthersEntered() {
  chosen_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->worked() > 0 || sequence->group().paused) continue;
    if (store_.HasMore(*sequence)) chosen_.push_back(sequence);
  }
  for (Sequence* sequence : chosen_) {
    if (sequence->place == SequencePlace::kRunning) TakeCached(*sequence);
  }
}

// Plans the step and makes room for it. A plan counts the pages of those it preempts as
// if they were theirs alone; so whenever somebody was preempted it is made again, and
// only one that preempts nobody is carried out.
void Engine::PlanStep() {
  while (true) {
    views_.clear();
    for (const Sequence* sequence : running_) views_.push_back(sequence->View());
    scheduler_.Plan(views_, store_.available(), cost_, plan_);
    if (plan_.preempted.empty() && plan_.pool_full.empty()) return;
    chosen_.clear();
    const bool full = plan_.preempted.empty();
    for (const int32_t index : full ? plan_.pool_full : plan_.preempted) {
      chosen_.push_back(running_[static_cast<size_t>(index)]);
    }
    for (Sequence* sequence : chosen_) {
      if (full) {
        EndChoice(*sequence,
                  {.reason = FinishReason::kLength, .cause = StopCause::kPool});
      } else {
        Preempt(*sequence);
      }
    }
    if (!full) window_.NotePressure(clock_.Now());
  }
}

void Engine::Preempt(Sequence& sequence) {
  if (PagesFor(sequence.known_tokens()) > store_.total()) {
    EndChoice(sequence, {.reason = FinishReason::kLength, .cause = StopCause::kPool});
    return;
  }
  metrics_.preemptions.Increment();
  metrics_.flight_recorder.Mark(sequence.request().ticket, FlightEvent::kPreempted,
                                clock_.Now());
  LeaveRunning(sequence);
  sequence.lost = sequence.computed();
  store_.Release(sequence);
  if (sequence.group().paused) {
    Park(sequence);
  } else {
    WaitAgain(sequence);
  }
}

// Sees to it that each sequence of the step can hold an open page. There are as many as
// sequences in a step; others may have some as well (paused ones, and those that were
// resumed while the step was full), and lose them and what they computed since their last
// whole page.
void Engine::FreeOpenPages() {
  const auto lacks = [](const Sequence* sequence) { return sequence->open_page() < 0; };
  const int64_t wanted = std::count_if(planned_.begin(), planned_.end(), lacks);
  while (store_.open_total() > 0 && store_.open_free() < wanted) {
    Sequence* holder = RestingHolder();
    RENGA_CHECK(holder != nullptr);
    const int64_t lost = holder->DropOpenPage();
    metrics_.wasted_tokens_preempted.Increment(static_cast<double>(lost));
  }
}

// A holder of an open page that takes no part in the step: a paused one rather than
// others, and then the youngest.
Sequence* Engine::RestingHolder() const {
  Sequence* best = nullptr;
  const auto rank = [](const Sequence& sequence) {
    return std::pair(sequence.group().paused, sequence.age());
  };
  for (Sequence* sequence : running_) {
    if (sequence->open_page() < 0) continue;
    if (std::find(planned_.begin(), planned_.end(), sequence) != planned_.end()) continue;
    if (best == nullptr || rank(*sequence) > rank(*best)) best = sequence;
  }
  return best;
}

// Runs the rows of the plan and fills the results of `input_`.
Status Engine::RunStep() {
  planned_.clear();
  for (const PlannedRows& planned : plan_.rows) {
    planned_.push_back(running_[static_cast<size_t>(planned.sequence)]);
  }
  FreeOpenPages();
  input_.Clear();
  for (size_t i = 0; i < planned_.size(); ++i) {
    const PlannedRows& planned = plan_.rows[i];
    // The plan made room.
    RENGA_CHECK(store_.Grow(*planned_[i], planned_[i]->computed() + planned.rows));
    input_.Add(*planned_[i], planned.rows, planned.samples, planned.decodes);
  }
  input_.Finish();
  RENGA_RETURN_IF_ERROR(transformer_.Forward(input_.batch()));
  if (input_.specs().empty()) return OkStatus();
  return transformer_.backend().Sample(input_.specs(), input_.results());
}

void Engine::FailStep(const Status& status) {
  LogError("step failed", {{"code", StatusCodeName(status.code())},
                           {"message", std::string_view(status.message())},
                           {"sequences", input_.entries().size()}});
  for (const StepEntry& entry : input_.entries()) {
    if (entry.sequence->place == SequencePlace::kEnded) continue;  // With a sibling.
    FailOnDevice(entry.sequence->group(), status);
  }
}

// ---- Delivery ------------------------------------------------------------------------

void Engine::Deliver(TimePoint now) {
  for (const StepEntry& entry : input_.entries()) {
    Sequence& sequence = *entry.sequence;
    if (sequence.place == SequencePlace::kEnded) continue;  // Failed with a sibling.
    sequence.Advance(entry.rows);
    store_.Enter(sequence);
    if (!DeliverScores(entry) || !entry.samples) continue;
    if (sequence.group().started) {
      DeliverToken(sequence, input_.draws_of(entry)[0], now);
    } else {
      DeliverPrompt(sequence.group(), entry, now);
    }
  }
}

// False: they were not finite, and the request has failed.
bool Engine::DeliverScores(const StepEntry& entry) {
  RequestGroup& group = entry.sequence->group();
  int64_t row = entry.first_score_row;
  for (const SampleResult& result : input_.scores_of(entry)) {
    Status status = CheckSample(result, request_limits_.vocab);
    if (!status.ok()) {
      Fail(group, std::move(status));
      return false;
    }
    group.scores.Add(row++, result);
  }
  return true;
}

// The prompt is complete: from here on each choice is on its own.
void Engine::DeliverPrompt(RequestGroup& group, const StepEntry& entry, TimePoint now) {
  const std::span<const SampleResult> draws = input_.draws_of(entry);
  if (draws.empty()) {
    Start(group, now);
    for (Sequence& choice : group.choices()) {
      EndChoice(choice, StopAtLength(group.request(), 0));
    }
    return;
  }
  // Before anything is said of it: nobody hears OnStart of what has failed.
  for (const SampleResult& result : draws) {
    Status status = CheckSample(result, request_limits_.vocab);
    if (!status.ok()) return Fail(group, std::move(status));
  }
  if (!Fork(group, draws.size())) return;
  Start(group, now);
  for (size_t i = 0; i < draws.size(); ++i) {
    Sequence& choice = group.choices()[i];
    if (choice.place == SequencePlace::kEnded) return;  // The request has failed.
    DeliverToken(choice, draws[i], now);
  }
}

// Gives the other choices what choice 0 has computed. Those of which no token was sampled
// compute the prompt's last row themselves. False: the device failed, and so did the
// request.
bool Engine::Fork(RequestGroup& group, size_t sampled) {
  const Sequence& first = group.first();
  if (group.unforked() == 0) return true;
  group.NoteForked();
  for (size_t i = 1; i < group.choices().size(); ++i) {
    Sequence& choice = group.choices()[i];
    choice.batch = first.batch;
    EnterRunning(choice);
    const int64_t shared = first.computed() - (i < sampled ? 0 : 1);
    const Status status = store_.Fork(first, shared, choice);
    if (status.ok()) continue;
    NoteFailure(status);
    FailOnDevice(group, status);
    return false;
  }
  return true;
}

void Engine::Start(RequestGroup& group, TimePoint now) {
  group.started = true;
  group.prompt_done = now;
  metrics_.flight_recorder.Mark(group.request().ticket, FlightEvent::kFirstToken, now,
                                group.cached_tokens);
  const KvSource source =
      group.cached_tokens > 0 ? KvSource::kPrefixCache : KvSource::kComputed;
  const EngineRequest& request = group.request();
  if (request.counted) {
    metrics_.CountPromptTokens(KvSource::kComputed,
                               group.prompt_tokens() - group.cached_tokens);
    metrics_.CountPromptTokens(KvSource::kPrefixCache, group.cached_tokens);
    if (request.max_tokens > 0) metrics_.ObserveFirstToken(source, now - request.arrival);
  }
  StartInfo info{.prompt_tokens = group.prompt_tokens(),
                 .cached_tokens = group.cached_tokens,
                 .kv_source = source,
                 .queue = *group.first_step - request.arrival,
                 .prefill = now - *group.first_step};
  if (request.echo) info.prompt = group.first().prompt();
  if (request.prompt_logprobs >= 0) info.prompt_logprobs = group.scores.all();
  group.sink().OnStart(info);
}

void Engine::DeliverToken(Sequence& sequence, const SampleResult& result, TimePoint now) {
  RequestGroup& group = sequence.group();
  Status status = CheckSample(result, request_limits_.vocab);
  if (!status.ok()) return Fail(group, std::move(status));
  NoteToken(sequence, now);
  sequence.Append(result.token);
  const EngineRequest& request = group.request();
  const StopDecision at_token = StopAtToken(request, result.token);
  if (at_token.stops()) return EndChoice(sequence, at_token);

  TokenChunk chunk{
      .choice = sequence.choice(), .tokens = sequence.tokens().last(1), .text = {}};
  if (request.logprobs >= 0) {
    token_logprob_.token = result.token;
    token_logprob_.logprob = result.logprob;
    token_logprob_.top.assign(result.top.begin(), result.top.end());
    chunk.logprobs = {&token_logprob_, 1};
  }
  const SinkVerdict verdict = group.sink().OnToken(chunk);
  if (verdict == SinkVerdict::kPause) Pause(group);
  if (verdict == SinkVerdict::kStop) {
    return EndChoice(sequence,
                     {.reason = FinishReason::kStop, .cause = StopCause::kNone});
  }
  const StopDecision at_length = StopAtLength(request, sequence.generated());
  if (at_length.stops()) EndChoice(sequence, at_length);
}

// Choices that wait after a preemption must not take a place that they can't use.
void Engine::Pause(RequestGroup& group) {
  group.paused = true;
  group.paused_at = clock_.Now();
  for (Sequence& choice : group.choices()) {
    if (choice.place != SequencePlace::kWaiting) continue;
    LeaveWindow(choice);
    Park(choice);
  }
}

void Engine::NoteToken(Sequence& sequence, TimePoint now) {
  RequestGroup& group = sequence.group();
  const bool counted = group.request().counted;
  if (counted) metrics_.generated_tokens.Increment();
  if (sequence.generated() == 0) {
    sequence.first_token = now;
  } else {
    const Duration gap = now - sequence.last_token;
    if (gap > sequence.max_gap) {
      sequence.max_gap = gap;
      sequence.max_gap_end = now;
    }
    if (counted) metrics_.inter_token_latency.Observe(gap);
  }
  sequence.last_token = now;
  group.last_token = now;
}

// ---- Ends ----------------------------------------------------------------------------

// One choice has its answer; the request ends with its last one.
void Engine::EndChoice(Sequence& sequence, const StopDecision& decision) {
  RequestGroup& group = sequence.group();
  Leave(sequence);
  group.NoteEnd(sequence, decision);
  if (group.request().counted && sequence.generated() > 1) {
    metrics_.time_per_output_token.Observe((sequence.last_token - sequence.first_token) /
                                           (sequence.generated() - 1));
  }
  ChoiceEnd end;
  end.choice = sequence.choice();
  end.finish_reason = decision.reason;
  end.stop_cause = decision.cause;
  end.completion_tokens = sequence.generated();
  group.sink().OnChoiceEnd(end);
  if (group.live() > 0) return;
  Completion completion;
  completion.finish_reason = group.first_end().reason;
  completion.stop_cause = group.first_end().cause;
  End(group, std::move(completion));
}

void Engine::Fail(RequestGroup& group, Status status) {
  Completion completion;
  completion.status = std::move(status);
  End(group, std::move(completion));
}

// What the device says may name its files and places: it is for the log alone.
void Engine::FailOnDevice(RequestGroup& group, const Status& status) {
  Fail(group, status.code() == StatusCode::kUnavailable
                  ? Unavailable("the device is not available")
                  : Internal("the device failed a step"));
}

void Engine::CancelWith(RequestGroup& group, Status status, FinishReason reason) {
  if (group.request().counted) metrics_.CountCancellation(StageOf(group));
  int64_t wasted = 0;
  for (const Sequence& choice : group.choices()) wasted += choice.worked();
  metrics_.wasted_tokens_cancelled.Increment(static_cast<double>(wasted));
  Completion completion;
  completion.status = std::move(status);
  completion.finish_reason = reason;
  End(group, std::move(completion));
}

void Engine::End(RequestGroup& group, Completion completion) {
  for (Sequence& choice : group.choices()) Leave(choice);
  if (!group.admitted) queue_.Release(1, group.prompt_tokens());
  completion.usage = group.usage();
  completion.timings = group.timings();
  ObserveEnd(group, completion);
  RecordEnd(group, clock_.Now());
  request_bytes_ -= group.reserved_bytes();
  const auto found = requests_.find(group.id());
  ended_.push_back(std::move(found->second));
  requests_.erase(found);
  Publish();  // Its client's next request is judged by what is left.
  group.sink().OnDone(completion);
}

// Takes a sequence out of wherever it is; it holds nothing afterwards.
void Engine::Leave(Sequence& sequence) {
  switch (std::exchange(sequence.place, SequencePlace::kEnded)) {
    case SequencePlace::kRunning:
      LeaveRunning(sequence);
      break;
    case SequencePlace::kWaiting:
      LeaveWindow(sequence);
      break;
    case SequencePlace::kParked:
      --parked_;
      break;
    case SequencePlace::kUnforked:
    case SequencePlace::kEnded:
      return;
  }
  if (sequence.group().admitted)
    load_.NoteEnded(clock_.Now() - sequence.group().admitted_at);
  store_.Release(sequence);
}

void Engine::ObserveEnd(const RequestGroup& group, const Completion& completion) {
  if (!group.request().counted) return;
  const RequestTimings& timings = completion.timings;
  if (group.first_step) metrics_.request_queue.Observe(timings.queue);
  if (!group.prompt_done) return;
  metrics_.request_prefill.Observe(timings.prefill);
  if (completion.usage.completion_tokens == 0) return;
  metrics_.request_decode.Observe(timings.decode);
  const auto gaps = [](const Sequence& choice) { return choice.generated() > 1; };
  if (std::any_of(group.choices().begin(), group.choices().end(), gaps)) {
    metrics_.request_max_gap.Observe(timings.max_gap);
  }
}

}  // namespace renga
