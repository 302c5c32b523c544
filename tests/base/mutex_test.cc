#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace renga {
namespace {

TEST(MutexTest, IncrementsOfManyThreadsAllCount) {
  Mutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        MutexLock lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 40'000);
}

TEST(CondVarTest, AWaiterSeesWhatTheNotifierWrote) {
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  std::thread notifier([&] {
    MutexLock lock(mutex);
    ready = true;
    changed.NotifyAll();
  });
  {
    MutexLock lock(mutex);
    while (!ready) changed.Wait(mutex);
  }
  notifier.join();
}

TEST(CondVarTest, WaitUntilGivesUpAtItsDeadlineAndHoldsTheMutex) {
  Mutex mutex;
  CondVar changed;
  MutexLock lock(mutex);
  const TimePoint now = std::chrono::steady_clock::now();
  while (changed.WaitUntil(mutex, now)) {
  }
  EXPECT_GE(std::chrono::steady_clock::now(), now);
}

}  // namespace
}  // namespace renga
