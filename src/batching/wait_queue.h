// WaitQueue: the bounded mailbox between the threads that submit and the engine thread.
//
// It bounds what waits, not what it holds: a request counts from TryPush until the engine
// says that it left (Release), also while it sits in the engine's BatchWindow.
//
// What was posted before Close is in the mail of the first Take that says `closed`, or
// before: an engine that looks at that mail has seen every request and every flush.
//
// Thread safety: TryPush, PostCancel, PostResume, PostFlush, Close and the counters from
// any thread; Take and Release from the engine thread only.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "batching/engine_request.h"

namespace renga {

class WaitQueue {
 public:
  struct Limits {
    int64_t max_requests = 256;
    int64_t max_tokens = 65536;  // Prompt tokens.
  };

  enum class PushResult { kOk, kFull, kClosed };

  // What arrived since the last Take, in order of arrival.
  struct Mail {
    std::vector<EngineRequest> requests;
    std::vector<RequestId> cancels;
    std::vector<RequestId> resumes;
    // Each wants the prefix cache emptied, and must be called once, with the pages that
    // came free or with -1 if that can't be done.
    std::vector<std::function<void(int64_t pages)>> flushes;
    bool closed = false;  // No more requests will come.
  };

  explicit WaitQueue(const Limits& limits) : limits_(limits) {}
  // Calls what flushes were never taken with -1.
  ~WaitQueue();
  WaitQueue(const WaitQueue&) = delete;
  WaitQueue& operator=(const WaitQueue&) = delete;

  // `request` is moved from only if the answer is kOk. A request larger than max_tokens
  // is let in when nothing else waits.
  PushResult TryPush(EngineRequest& request) RENGA_EXCLUDES(mutex_);
  void PostCancel(RequestId id) RENGA_EXCLUDES(mutex_);
  void PostResume(RequestId id) RENGA_EXCLUDES(mutex_);
  // True: `done` will be called once, by the engine thread (see Mail). False: the queue
  // is closed, and `done` is never called.
  bool PostFlush(std::function<void(int64_t pages)> done) RENGA_EXCLUDES(mutex_);
  // Refuses further requests and flushes; cancels and resumes still pass.
  void Close() RENGA_EXCLUDES(mutex_);
  // Wakes a waiting Take with whatever there is.
  void Wake() RENGA_EXCLUDES(mutex_);

  // Everything posted so far. Waits for something to come, for Wake or for `until`
  // (nullopt: without limit); with `until` in the past it does not wait.
  Mail Take(std::optional<TimePoint> until) RENGA_EXCLUDES(mutex_);
  // `requests` with `tokens` prompt tokens no longer wait.
  void Release(int64_t requests, int64_t tokens) RENGA_EXCLUDES(mutex_);

  int64_t waiting_requests() const RENGA_EXCLUDES(mutex_);
  int64_t waiting_tokens() const RENGA_EXCLUDES(mutex_);

 private:
  const Limits limits_;
  mutable Mutex mutex_;
  CondVar changed_;
  Mail mail_ RENGA_GUARDED_BY(mutex_);
  int64_t waiting_requests_ RENGA_GUARDED_BY(mutex_) = 0;
  int64_t waiting_tokens_ RENGA_GUARDED_BY(mutex_) = 0;
  bool closed_ RENGA_GUARDED_BY(mutex_) = false;
  bool wake_ RENGA_GUARDED_BY(mutex_) = false;
};

}  // namespace renga
