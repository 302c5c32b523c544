#include "app/signal_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

namespace renga {
namespace {

TEST(SignalWatchTest, TheFirstSignalOfEitherKindAsksToStop) {
  for (const int signal : {SIGTERM, SIGINT}) {
    std::promise<void> asked;
    SignalWatch watch([&asked] { asked.set_value(); });
    kill(getpid(), signal);
    asked.get_future().wait();
  }
}

TEST(SignalWatchTest, EndsWithoutASignal) {
  SignalWatch watch([] { FAIL(); });
}

TEST(SignalWatchDeathTest, TheSecondSignalEndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::promise<void> asked;
        SignalWatch watch([&asked] { asked.set_value(); });
        kill(getpid(), SIGTERM);
        asked.get_future().wait();
        kill(getpid(), SIGTERM);
        for (;;) pause();
      },
      testing::ExitedWithCode(SignalWatch::kSecondSignalExitCode), "");
}

}  // namespace
}  // namespace renga
