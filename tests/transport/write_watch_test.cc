#include "transport/write_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace renga {
namespace {

class CountingCall final : public WriteWatch::Watched {
 public:
  void OnWriteStuck() override { ++stuck; }
  std::atomic<int> stuck{0};
};

void WaitUntil(const std::atomic<int>& count, int value) {
  while (count < value) std::this_thread::yield();
}

TEST(WriteWatchTest, FindsEachStuckWriteOnce) {
  WriteWatch watch(std::chrono::milliseconds(4));
  CountingCall stuck, again, idle, ended;
  for (CountingCall* call : {&stuck, &again, &idle, &ended}) watch.Add(*call);
  stuck.WriteBegins();
  again.WriteBegins();
  ended.WriteBegins();
  ended.WriteEnds();
  WaitUntil(stuck.stuck, 1);
  WaitUntil(again.stuck, 1);
  again.WriteBegins();
  WaitUntil(again.stuck, 2);
  for (CountingCall* call : {&stuck, &again, &idle, &ended}) watch.Remove(*call);
  EXPECT_EQ(stuck.stuck, 1);
  EXPECT_EQ(idle.stuck, 0);
  EXPECT_EQ(ended.stuck, 0);
}

TEST(WriteWatchTest, AWriteHasADurationUntilItEndsOrIsFoundStuck) {
  WriteWatch watch(std::chrono::milliseconds(4));
  CountingCall call;
  EXPECT_EQ(call.WriteEnds(), std::nullopt);
  call.WriteBegins();
  const std::optional<Duration> took = call.WriteEnds();
  ASSERT_TRUE(took.has_value());
  EXPECT_GE(*took, Duration::zero());
  EXPECT_EQ(call.WriteEnds(), std::nullopt);
  call.WriteBegins();
  watch.Add(call);
  WaitUntil(call.stuck, 1);
  EXPECT_EQ(call.WriteEnds(), std::nullopt);
  watch.Remove(call);
}

TEST(WriteWatchTest, WakesUpForACallAfterNoneWasThere) {
  WriteWatch watch(std::chrono::milliseconds(2));
  for (int i = 0; i < 3; ++i) {
    CountingCall call;
    call.WriteBegins();
    watch.Add(call);
    WaitUntil(call.stuck, 1);
    watch.Remove(call);
  }
}

}  // namespace
}  // namespace renga
