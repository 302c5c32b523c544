#include "service/counting_sink.h"

#include <chrono>
#include <utility>

namespace renga {
namespace {

// A client starts its clock before its request has reached us.
constexpr std::chrono::milliseconds kClientClockLead{20};

}  // namespace

RequestOutcome CountingSink::OutcomeOf(const Completion& completion) const {
  switch (completion.status.code()) {
    case StatusCode::kOk:
      return completion.finish_reason == FinishReason::kCancelled
                 ? RequestOutcome::kCancelled
                 : RequestOutcome::kOk;
    case StatusCode::kCancelled:
      return deadline_ && clock_.Now() >= *deadline_ - kClientClockLead
                 ? RequestOutcome::kDeadline
                 : RequestOutcome::kCancelled;
    case StatusCode::kDeadlineExceeded:
      return RequestOutcome::kDeadline;
    case StatusCode::kResourceExhausted:
      return RequestOutcome::kRejected;
    default:
      return RequestOutcome::kError;
  }
}

void CountingSink::Record(const GenerateRequest& request) {
  chat_ = std::holds_alternative<ChatInput>(request.prompt);
  n_ = request.n;
  if (counted_) ticket_ = metrics_.flight_recorder.Open(request.id, arrival_);
}

void CountingSink::OnDone(const Completion& completion) {
  const RequestOutcome outcome = OutcomeOf(completion);
  Count(outcome, completion);
  if (counted_ && outcome == RequestOutcome::kRejected) {
    metrics_.CountRejection(RejectReason::kDeadline);
  }
  client_.OnDone(completion);
}

void CountingSink::Refuse(RejectReason reason, Status status) {
  Completion completion;
  completion.status = std::move(status);
  Count(RequestOutcome::kRejected, completion);
  if (counted_) metrics_.CountRejection(reason);
  client_.OnDone(completion);
}

void CountingSink::Count(RequestOutcome outcome, const Completion& completion) {
  if (!counted_) return;
  const TimePoint now = clock_.Now();
  const RequestTimings& timings = completion.timings;
  ServedRequest served{.outcome = outcome, .elapsed = now - arrival_, .chat = chat_};
  const int64_t tokens = completion.usage.completion_tokens;
  if (tokens > 0) served.first_token = timings.queue + timings.prefill;
  if (tokens > n_) served.per_token = timings.decode * n_ / (tokens - n_);
  metrics_.CountRequest(served);
  metrics_.flight_recorder.Close(
      ticket_,
      {.at = now,
       .outcome = completion.status.ok() ? FinishReasonName(completion.finish_reason)
                                         : StatusCodeName(completion.status.code()),
       .tokens = tokens});
}

void CountingSink::EndUnstarted(Status status) {
  Completion completion;
  completion.status = std::move(status);
  completion.finish_reason = FinishReason::kCancelled;
  OnDone(completion);
}

}  // namespace renga
