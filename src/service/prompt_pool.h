// PromptPool: the few threads that render and encode prompts, so that neither an event
// loop nor the engine thread does.
//
// The queue is bounded in jobs and in bytes, and goes in order of arrival, but that a job
// whose deadline has passed is taken first: it ends without work, and would otherwise
// wait for that of others. A job ends by exactly one Finish, whatever happens: on a pool
// thread after Prepare, or without Prepare on the thread that cancels it or destroys the
// pool.
//
// Thread safety: TryAdd, Cancel and WaitIdle from any thread.
// Invariants: a job is in `queued_` or in `running_`, or was finished; no lock is held
// while a job's methods run.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "renga/clock.h"
#include "renga/status.h"
#include "renga/types.h"

namespace renga {

class PromptJob {
 public:
  virtual ~PromptJob() = default;
  virtual RequestId id() const = 0;
  virtual int64_t bytes() const = 0;  // Of the prompt.
  virtual std::optional<TimePoint> deadline() const = 0;
  // The work, or a look at the deadline alone if it has passed. Called at most once.
  virtual Status Prepare() = 0;
  // `status`: of Prepare; CANCELLED or UNAVAILABLE if it was not wanted any more.
  virtual void Finish(Status status) = 0;
};

class PromptPool {
 public:
  struct Limits {
    int32_t threads = 2;
    int64_t max_jobs = 256;                 // Queued.
    int64_t max_bytes = int64_t{64} << 20;  // Of their prompts; one alone may be larger.
  };

  // What is queued.
  struct Backlog {
    int64_t jobs = 0;
    int64_t bytes = 0;  // Of their prompts.
  };

  // `late_cancel` is told of a job that was cancelled while its Finish ran, once that has
  // returned: whoever got the job there must end it. `clock` outlives the pool.
  PromptPool(const Limits& limits, const Clock& clock,
             std::function<void(RequestId)> late_cancel);
  // Finishes what is queued with UNAVAILABLE and waits for what runs.
  ~PromptPool();

  // Takes the job; returns it if the queue is full.
  std::unique_ptr<PromptJob> TryAdd(std::unique_ptr<PromptJob> job)
      RENGA_EXCLUDES(mutex_);
  // False: no such job here. A queued one is finished before this returns.
  bool Cancel(RequestId id) RENGA_EXCLUDES(mutex_);
  // Waits until no job is left; false if some are at `deadline`.
  bool WaitIdle(TimePoint deadline) RENGA_EXCLUDES(mutex_);
  Backlog backlog() const RENGA_EXCLUDES(mutex_);

 private:
  struct Running {
    RequestId id{};
    bool cancelled = false;
  };

  void Work() RENGA_EXCLUDES(mutex_);
  // REQUIRES: some job is queued.
  std::unique_ptr<PromptJob> TakeNext() RENGA_REQUIRES(mutex_);
  void RunJob(PromptJob& job) RENGA_EXCLUDES(mutex_);
  bool IsCancelled(RequestId id) RENGA_REQUIRES(mutex_);

  const Limits limits_;
  const Clock& clock_;
  const std::function<void(RequestId)> late_cancel_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::unique_ptr<PromptJob>> queued_ RENGA_GUARDED_BY(mutex_);
  int64_t queued_bytes_ RENGA_GUARDED_BY(mutex_) = 0;
  std::vector<Running> running_ RENGA_GUARDED_BY(mutex_);  // At most one per thread.
  bool closed_ RENGA_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace renga
