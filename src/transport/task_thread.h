// TaskThread: one thread that runs short computations which may not run on gRPC's threads
// (tokenising a long text), one after another.
//
// Thread safety: TryPost may be called from any thread.

#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.h"

namespace renga {

class TaskThread {
 public:
  // At most `max_waiting` tasks wait.
  explicit TaskThread(size_t max_waiting);
  ~TaskThread();  // Runs what waits, then ends.

  // False: too many wait; `task` is not run.
  bool TryPost(std::function<void()> task) RENGA_EXCLUDES(mutex_);

 private:
  void Run() RENGA_EXCLUDES(mutex_);

  const size_t max_waiting_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> waiting_ RENGA_GUARDED_BY(mutex_);
  bool ending_ RENGA_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it reads the others.
};

}  // namespace renga
