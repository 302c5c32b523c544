#include "batching/wait_queue.h"

#include <utility>

#include "base/check.h"

namespace renga {

WaitQueue::~WaitQueue() {
  for (const auto& done : Take(TimePoint::min()).flushes) done(-1);
}

WaitQueue::PushResult WaitQueue::TryPush(EngineRequest& request) {
  const int64_t tokens = static_cast<int64_t>(request.prompt.size());
  MutexLock lock(mutex_);
  if (closed_) return PushResult::kClosed;
  if (waiting_requests_ >= limits_.max_requests) return PushResult::kFull;
  if (waiting_requests_ > 0 && tokens > limits_.max_tokens - waiting_tokens_) {
    return PushResult::kFull;
  }
  waiting_requests_ += 1;
  waiting_tokens_ += tokens;
  mail_.requests.push_back(std::move(request));
  changed_.NotifyOne();
  return PushResult::kOk;
}

void WaitQueue::PostCancel(RequestId id) {
  MutexLock lock(mutex_);
  mail_.cancels.push_back(id);
  changed_.NotifyOne();
}

void WaitQueue::PostResume(RequestId id) {
  MutexLock lock(mutex_);
  mail_.resumes.push_back(id);
  changed_.NotifyOne();
}

bool WaitQueue::PostFlush(std::function<void(int64_t pages)> done) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  mail_.flushes.push_back(std::move(done));
  changed_.NotifyOne();
  return true;
}

void WaitQueue::Close() {
  MutexLock lock(mutex_);
  if (closed_) return;
  closed_ = true;
  wake_ = true;  // Once: a closed queue that still holds work may be waited on.
  changed_.NotifyOne();
}

void WaitQueue::Wake() {
  MutexLock lock(mutex_);
  wake_ = true;
  changed_.NotifyOne();
}

WaitQueue::Mail WaitQueue::Take(std::optional<TimePoint> until) {
  MutexLock lock(mutex_);
  while (!wake_ && mail_.requests.empty() && mail_.cancels.empty() &&
         mail_.resumes.empty() && mail_.flushes.empty()) {
    if (!until) {
      changed_.Wait(mutex_);
    } else if (*until <= std::chrono::steady_clock::now() ||
               !changed_.WaitUntil(mutex_, *until)) {
      break;
    }
  }
  wake_ = false;
  Mail mail = std::move(mail_);
  mail_ = Mail();
  mail.closed = closed_;
  return mail;
}

void WaitQueue::Release(int64_t requests, int64_t tokens) {
  MutexLock lock(mutex_);
  RENGA_CHECK(waiting_requests_ >= requests && waiting_tokens_ >= tokens);
  waiting_requests_ -= requests;
  waiting_tokens_ -= tokens;
}

int64_t WaitQueue::waiting_requests() const {
  MutexLock lock(mutex_);
  return waiting_requests_;
}

int64_t WaitQueue::waiting_tokens() const {
  MutexLock lock(mutex_);
  return waiting_tokens_;
}

}  // namespace renga
