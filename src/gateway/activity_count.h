// ActivityCount: how many things are under way, and a wait for none.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <cstdint>

#include "base/mutex.h"

namespace renga {

class ActivityCount {
 public:
  void Enter() RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ++count_;
  }
  void Leave() RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (--count_ == 0) none_.NotifyAll();
  }
  int64_t count() const RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return count_;
  }
  // False if there still are some at `deadline`.
  bool WaitUntilNone(TimePoint deadline) RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (count_ != 0) {
      if (!none_.WaitUntil(mutex_, deadline)) break;
    }
    return count_ == 0;
  }
  void WaitUntilNone() RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (count_ != 0) none_.Wait(mutex_);
  }

 private:
  mutable Mutex mutex_;
  CondVar none_;
  int64_t count_ RENGA_GUARDED_BY(mutex_) = 0;
};

}  // namespace renga
