// WriteWatch: ends calls whose client does not take what is written to it.
//
// gRPC has no time limit for one write. A timer per write would cost a lock and a heap
// entry per token; instead each call notes when its write began, and one thread looks at
// all of them four times per timeout. A stuck write is found 1 to 1.25 timeouts after it
// began.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <unordered_set>

#include "base/mutex.h"
#include "renga/types.h"

namespace renga {

class WriteWatch {
 public:
  class Watched {
   public:
    virtual ~Watched() = default;
    // The write of this call takes too long. Called by the watch's thread, at most once
    // per write, never after Remove. Must not call the watch.
    virtual void OnWriteStuck() = 0;

    void WriteBegins();
    // How long the write took; nothing if none is under way, or it was found stuck.
    std::optional<Duration> WriteEnds();

   private:
    friend class WriteWatch;
    std::atomic<int64_t> began_{0};  // Nanoseconds of the monotonic clock; 0: no write.
  };

  explicit WriteWatch(Duration timeout);
  ~WriteWatch();

  void Add(Watched& call) RENGA_EXCLUDES(mutex_);
  // Afterwards `call` may be destroyed. Waits for an OnWriteStuck that runs now.
  void Remove(Watched& call) RENGA_EXCLUDES(mutex_);

 private:
  void Run() RENGA_EXCLUDES(mutex_);
  void Look() RENGA_REQUIRES(mutex_);

  const Duration timeout_;
  Mutex mutex_;
  CondVar changed_;
  std::unordered_set<Watched*> calls_ RENGA_GUARDED_BY(mutex_);
  bool ending_ RENGA_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it reads the others.
};

}  // namespace renga
