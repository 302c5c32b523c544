// FakeServerControl: answers as it is told and counts its calls.
//
// Thread safety: every method may be called from any thread; the answers are set before
// the first call.

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "renga/server_control.h"

namespace renga {

class FakeServerControl final : public ServerControl {
 public:
  MemoryReport report;
  std::function<StatusOr<int64_t>()> flush = [] { return StatusOr<int64_t>(int64_t{3}); };
  Status log_status;

  MemoryReport ReportMemory() override {
    Count();
    return report;
  }
  StatusOr<int64_t> FlushCache() override {
    Count();
    return flush();
  }
  void StartDrain() override {
    Count();
    MutexLock lock(mutex_);
    ++drains_;
  }
  Status SetLogLevel(std::string_view level) override {
    Count();
    MutexLock lock(mutex_);
    level_ = level;
    return log_status;
  }

  int calls() const {
    MutexLock lock(mutex_);
    return calls_;
  }
  int drains() const {
    MutexLock lock(mutex_);
    return drains_;
  }
  std::string level() const {
    MutexLock lock(mutex_);
    return level_;
  }

 private:
  void Count() {
    MutexLock lock(mutex_);
    ++calls_;
  }

  mutable Mutex mutex_;
  int calls_ RENGA_GUARDED_BY(mutex_) = 0;
  int drains_ RENGA_GUARDED_BY(mutex_) = 0;
  std::string level_ RENGA_GUARDED_BY(mutex_);
};

}  // namespace renga
