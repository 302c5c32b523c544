// The pool's loop. Cancelling a job that runs only marks it: its thread looks at the mark
// before Finish, and again after it (late_cancel_).

#include "service/prompt_pool.h"

#include <algorithm>
#include <utility>

namespace renga {

PromptPool::PromptPool(const Limits& limits, const Clock& clock,
                       std::function<void(RequestId)> late_cancel)
    : limits_(limits), clock_(clock), late_cancel_(std::move(late_cancel)) {
  for (int32_t i = 0; i < limits_.threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

PromptPool::~PromptPool() {
  std::deque<std::unique_ptr<PromptJob>> left;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    left.swap(queued_);
    queued_bytes_ = 0;
  }
  changed_.NotifyAll();
  for (const auto& job : left) job->Finish(Unavailable("the server is shutting down"));
  for (std::thread& thread : threads_) thread.join();
}

std::unique_ptr<PromptJob> PromptPool::TryAdd(std::unique_ptr<PromptJob> job) {
  {
    MutexLock lock(mutex_);
    const bool full = static_cast<int64_t>(queued_.size()) >= limits_.max_jobs ||
                      queued_bytes_ + job->bytes() > limits_.max_bytes;
    if (closed_ || (full && !queued_.empty())) return job;
    queued_bytes_ += job->bytes();
    queued_.push_back(std::move(job));
  }
  changed_.NotifyAll();
  return nullptr;
}

bool PromptPool::Cancel(RequestId id) {
  std::unique_ptr<PromptJob> job;
  {
    MutexLock lock(mutex_);
    for (Running& running : running_) {
      if (running.id != id) continue;
      running.cancelled = true;
      return true;
    }
    const auto found = std::find_if(queued_.begin(), queued_.end(),
                                    [&](const auto& j) { return j->id() == id; });
    if (found == queued_.end()) return false;
    job = std::move(*found);
    queued_.erase(found);
    queued_bytes_ -= job->bytes();
  }
  changed_.NotifyAll();
  job->Finish(Cancelled("the request was cancelled"));
  return true;
}

PromptPool::Backlog PromptPool::backlog() const {
  MutexLock lock(mutex_);
  return {.jobs = static_cast<int64_t>(queued_.size()), .bytes = queued_bytes_};
}

bool PromptPool::WaitIdle(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (!queued_.empty() || !running_.empty()) {
    if (!changed_.WaitUntil(mutex_, deadline)) {
      return queued_.empty() && running_.empty();
    }
  }
  return true;
}

void PromptPool::Work() {
  for (;;) {
    std::unique_ptr<PromptJob> job;
    {
      MutexLock lock(mutex_);
      while (queued_.empty() && !closed_) changed_.Wait(mutex_);
      if (queued_.empty()) return;
      job = TakeNext();
      running_.push_back({.id = job->id(), .cancelled = false});
    }
    RunJob(*job);
    changed_.NotifyAll();
  }
}

std::unique_ptr<PromptJob> PromptPool::TakeNext() {
  const TimePoint now = clock_.Now();
  auto next = std::find_if(queued_.begin(), queued_.end(), [&](const auto& job) {
    const std::optional<TimePoint> deadline = job->deadline();
    return deadline && *deadline <= now;
  });
  if (next == queued_.end()) next = queued_.begin();
  std::unique_ptr<PromptJob> job = std::move(*next);
  queued_.erase(next);
  queued_bytes_ -= job->bytes();
  return job;
}

void PromptPool::RunJob(PromptJob& job) {
  const RequestId id = job.id();
  Status status = job.Prepare();
  bool early = false;
  {
    MutexLock lock(mutex_);
    early = IsCancelled(id);
  }
  job.Finish(early ? Cancelled("the request was cancelled") : std::move(status));
  bool late = false;
  {
    MutexLock lock(mutex_);
    late = IsCancelled(id) && !early;
    std::erase_if(running_, [&](const Running& r) { return r.id == id; });
  }
  if (late) late_cancel_(id);
}

bool PromptPool::IsCancelled(RequestId id) {
  return std::any_of(running_.begin(), running_.end(),
                     [&](const Running& r) { return r.id == id && r.cancelled; });
}

}  // namespace renga
