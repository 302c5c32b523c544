#include "transport/task_thread.h"

#include <gmock/gmock.h>

#include <memory>
#include <vector>

#include "base/mutex.h"

namespace renga {
namespace {

TEST(TaskThreadTest, RunsTasksInOrderAndAllBeforeItEnds) {
  std::vector<int> ran;
  {
    TaskThread tasks(1000);
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(tasks.TryPost([&ran, i] { ran.push_back(i); }));
    }
  }
  ASSERT_EQ(ran.size(), 100u);
  EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
}

TEST(TaskThreadTest, SaysNoWhenTooManyWait) {
  Mutex mutex;
  CondVar changed;
  bool running = false;
  bool go_on = false;
  int ran = 0;
  {
    TaskThread tasks(2);
    ASSERT_TRUE(tasks.TryPost([&] {
      MutexLock lock(mutex);
      running = true;
      changed.NotifyAll();
      while (!go_on) changed.Wait(mutex);
      ++ran;
    }));
    MutexLock lock(mutex);
    while (!running) changed.Wait(mutex);
    EXPECT_TRUE(tasks.TryPost([&] { ++ran; }));
    EXPECT_TRUE(tasks.TryPost([&] { ++ran; }));
    EXPECT_FALSE(tasks.TryPost([&] { ++ran; }));
    go_on = true;
    changed.NotifyAll();
  }
  EXPECT_EQ(ran, 3);
}

}  // namespace
}  // namespace renga
