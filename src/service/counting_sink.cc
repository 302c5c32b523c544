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

void CountingSink::OnDone(const Completion& completion) {
  if (counted_) {
    const RequestOutcome outcome = OutcomeOf(completion);
    metrics_.CountRequest(outcome, clock_.Now() - arrival_);
    if (outcome == RequestOutcome::kRejected) {
      metrics_.CountRejection(RejectReason::kDeadline);
    }
  }
  client_.OnDone(completion);
}

void CountingSink::Refuse(RejectReason reason, Status status) {
  if (counted_) {
    metrics_.CountRequest(RequestOutcome::kRejected, clock_.Now() - arrival_);
    metrics_.CountRejection(reason);
  }
  Completion completion;
  completion.status = std::move(status);
  client_.OnDone(completion);
}

void CountingSink::EndUnstarted(Status status) {
  Completion completion;
  completion.status = std::move(status);
  completion.finish_reason = FinishReason::kCancelled;
  OnDone(completion);
}

}  // namespace renga
