// SignalWatch: SIGTERM and SIGINT as an orderly request to stop; a second one ends the
// process at once.
//
// Make it before any other thread, so that all of them inherit the blocked signals; one
// own thread waits for them.

#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

namespace renga {

class SignalWatch {
 public:
  // `on_first` runs on the watch's thread.
  explicit SignalWatch(std::function<void()> on_first);
  ~SignalWatch();

  static constexpr int kSecondSignalExitCode = 130;

 private:
  void Watch();

  const std::function<void()> on_first_;
  sigset_t signals_{};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace renga
