#include "service/counting_sink.h"

#include <utility>

namespace renga {
namespace {

RequestOutcome OutcomeOf(const Completion& completion) {
  switch (completion.status.code()) {
    case StatusCode::kOk:
      return completion.finish_reason == FinishReason::kCancelled
                 ? RequestOutcome::kCancelled
                 : RequestOutcome::kOk;
    case StatusCode::kCancelled:
      return RequestOutcome::kCancelled;
    case StatusCode::kDeadlineExceeded:
      return RequestOutcome::kDeadline;
    default:
      return RequestOutcome::kError;
  }
}

}  // namespace

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
