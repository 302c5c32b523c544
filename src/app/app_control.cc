#include "app/app_control.h"

#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace renga {
namespace {

// Where the engine leaves its answer; shared, as the asker may have gone by then.
class FlushAnswer {
 public:
  void Set(int64_t pages) RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    pages_ = pages;
    changed_.NotifyAll();
  }
  // nullopt: there was none in time.
  std::optional<int64_t> Wait(Duration timeout) RENGA_EXCLUDES(mutex_) {
    const TimePoint until = std::chrono::steady_clock::now() + timeout;
    MutexLock lock(mutex_);
    while (!pages_) {
      if (!changed_.WaitUntil(mutex_, until)) break;
    }
    return pages_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<int64_t> pages_ RENGA_GUARDED_BY(mutex_);
};

}  // namespace

AppControl::AppControl(MemoryCheck& memory, WaitQueue& queue,
                       std::function<void()> start_drain, Duration flush_timeout)
    : memory_(memory),
      queue_(queue),
      start_drain_(std::move(start_drain)),
      flush_timeout_(flush_timeout) {}

MemoryReport AppControl::ReportMemory() { return memory_.Report(); }

StatusOr<int64_t> AppControl::FlushCache() {
  const auto answer = std::make_shared<FlushAnswer>();
  if (!queue_.PostFlush([answer](int64_t pages) { answer->Set(pages); })) {
    return Unavailable("the server is shutting down");
  }
  const std::optional<int64_t> pages = answer->Wait(flush_timeout_);
  if (!pages) return Unavailable("the engine did not answer in time");
  if (*pages < 0) return Unavailable("the server is shutting down");
  LogInfo("cache_flushed", {{"pages", *pages}});
  return *pages;
}

void AppControl::StartDrain() {
  LogInfo("drain_requested");
  start_drain_();
}

Status AppControl::SetLogLevel(std::string_view level) {
  Status set = renga::SetLogLevel(level);
  if (set.ok()) LogWarn("log_level", {{"level", level}});
  return set;
}

}  // namespace renga
