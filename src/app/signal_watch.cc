#include "app/signal_watch.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace renga {

SignalWatch::SignalWatch(std::function<void()> on_first)
    : on_first_(std::move(on_first)) {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::thread([this] { Watch(); });
}

SignalWatch::~SignalWatch() {
  ending_ = true;
  // For this thread alone, which waits for it.
  // NOLINTNEXTLINE(bugprone-bad-signal-to-kill-thread)
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void SignalWatch::Watch() {
  bool seen = false;
  for (;;) {
    int signal = 0;
    if (sigwait(&signals_, &signal) != 0) continue;
    if (ending_) return;
    if (seen) _exit(kSecondSignalExitCode);
    seen = true;
    on_first_();
  }
}

}  // namespace renga
