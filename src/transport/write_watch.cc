#include "transport/write_watch.h"

#include <algorithm>
#include <chrono>

namespace renga {
namespace {

int64_t NowNanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

}  // namespace

void WriteWatch::Watched::WriteBegins() {
  began_.store(NowNanoseconds(), std::memory_order_relaxed);
}

std::optional<Duration> WriteWatch::Watched::WriteEnds() {
  const int64_t began = began_.exchange(0, std::memory_order_relaxed);
  if (began == 0) return std::nullopt;
  return Duration(NowNanoseconds() - began);
}

WriteWatch::WriteWatch(Duration timeout)
    : timeout_(timeout), thread_([this] { Run(); }) {}

WriteWatch::~WriteWatch() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void WriteWatch::Add(Watched& call) {
  MutexLock lock(mutex_);
  calls_.insert(&call);
  if (calls_.size() == 1) changed_.NotifyAll();
}

void WriteWatch::Remove(Watched& call) {
  MutexLock lock(mutex_);
  calls_.erase(&call);
}

void WriteWatch::Run() {
  const Duration period = std::max<Duration>(timeout_ / 4, std::chrono::milliseconds(1));
  MutexLock lock(mutex_);
  TimePoint next = std::chrono::steady_clock::now() + period;
  while (!ending_) {
    if (calls_.empty()) {
      changed_.Wait(mutex_);
      continue;
    }
    if (std::chrono::steady_clock::now() < next) {
      changed_.WaitUntil(mutex_, next);
      continue;
    }
    Look();
    next = std::chrono::steady_clock::now() + period;
  }
}

void WriteWatch::Look() {
  const int64_t stuck_before = NowNanoseconds() - timeout_.count();
  for (Watched* call : calls_) {
    int64_t began = call->began_.load(std::memory_order_relaxed);
    if (began == 0 || began > stuck_before) continue;
    // Unless this very write has just ended; then nothing is stuck.
    if (call->began_.compare_exchange_strong(began, 0, std::memory_order_relaxed)) {
      call->OnWriteStuck();
    }
  }
}

}  // namespace renga
