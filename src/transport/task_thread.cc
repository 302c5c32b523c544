#include "transport/task_thread.h"

#include <utility>

namespace renga {

TaskThread::TaskThread(size_t max_waiting)
    : max_waiting_(max_waiting), thread_([this] { Run(); }) {}

TaskThread::~TaskThread() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

bool TaskThread::TryPost(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    if (ending_ || waiting_.size() >= max_waiting_) return false;
    waiting_.push_back(std::move(task));
  }
  changed_.NotifyOne();
  return true;
}

void TaskThread::Run() {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !ending_) changed_.Wait(mutex_);
      if (waiting_.empty()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    task();
  }
}

}  // namespace renga
