// Mutex, MutexLock and CondVar: std's, with clang's thread-safety attributes.
//
// Not absl::Mutex: Debian's build of it gives false races under TSan.

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "renga/types.h"

#if defined(__clang__)
#define RENGA_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define RENGA_THREAD_ANNOTATION(x)
#endif

#define RENGA_GUARDED_BY(mutex) RENGA_THREAD_ANNOTATION(guarded_by(mutex))
#define RENGA_REQUIRES(mutex) RENGA_THREAD_ANNOTATION(requires_capability(mutex))
#define RENGA_EXCLUDES(mutex) RENGA_THREAD_ANNOTATION(locks_excluded(mutex))

namespace renga {

class RENGA_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void Lock() RENGA_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void Unlock() RENGA_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class RENGA_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) RENGA_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() RENGA_THREAD_ANNOTATION(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Every wait names its predicate's state under the one mutex that guards it:
//   MutexLock lock(mutex_);
//   while (!ready_) cond_.Wait(mutex_);
class CondVar {
 public:
  void Wait(Mutex& mutex) RENGA_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cond_.wait(lock);
    lock.release();
  }
  // False once `deadline` has passed; the predicate must be read again either way.
  bool WaitUntil(Mutex& mutex, TimePoint deadline) RENGA_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = cond_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { cond_.notify_one(); }
  void NotifyAll() { cond_.notify_all(); }

 private:
  std::condition_variable cond_;
};

}  // namespace renga
