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
    default:
      return RequestOutcome::kError;
  }
}

void CountingSink::OnDone(const Completion& completion) {
  if (counted_) {
    metrics_.CountRequest(OutcomeOf(completion));
    metrics_.request_duration.Observe(clock_.Now() - arrival_);
  }
  client_.OnDone(completion);
}

void CountingSink::Refuse(RejectReason reason, Status status) {
  if (counted_) {
    metrics_.CountRequest(RequestOutcome::kRejected);
    metrics_.CountRejection(reason);
  }
  Completion completion;
  completion.status = std::move(status);
  client_.OnDone(completion);
}

}  // namespace renga
