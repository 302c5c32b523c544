#include "service/prompt_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "tests/fakes/manual_clock.h"

namespace renga {
namespace {

// What a test knows of one job, and the door that lets its Prepare go on.
struct Probe {
  Mutex mutex;
  CondVar changed;
  bool open RENGA_GUARDED_BY(mutex) = true;
  bool entered RENGA_GUARDED_BY(mutex) = false;
  int finishes RENGA_GUARDED_BY(mutex) = 0;
  Status status RENGA_GUARDED_BY(mutex);

  void Close() {
    MutexLock lock(mutex);
    open = false;
  }
  void Open() {
    MutexLock lock(mutex);
    open = true;
    changed.NotifyAll();
  }
  void WaitEntered() {
    MutexLock lock(mutex);
    while (!entered) changed.Wait(mutex);
  }
  Status WaitFinished() {
    MutexLock lock(mutex);
    while (finishes == 0) changed.Wait(mutex);
    return status;
  }
  int Finishes() {
    MutexLock lock(mutex);
    return finishes;
  }
};

class ProbeJob final : public PromptJob {
 public:
  ProbeJob(uint64_t id, int64_t bytes, Probe& probe, std::optional<TimePoint> deadline)
      : id_(RequestId{id}), bytes_(bytes), probe_(probe), deadline_(deadline) {}
  RequestId id() const override { return id_; }
  int64_t bytes() const override { return bytes_; }
  std::optional<TimePoint> deadline() const override { return deadline_; }
  Status Prepare() override {
    MutexLock lock(probe_.mutex);
    probe_.entered = true;
    probe_.changed.NotifyAll();
    while (!probe_.open) probe_.changed.Wait(probe_.mutex);
    return OkStatus();
  }
  void Finish(Status status) override {
    MutexLock lock(probe_.mutex);
    ++probe_.finishes;
    probe_.status = std::move(status);
    probe_.changed.NotifyAll();
  }

 private:
  const RequestId id_;
  const int64_t bytes_;
  Probe& probe_;
  const std::optional<TimePoint> deadline_;
};

std::unique_ptr<PromptJob> Job(uint64_t id, Probe& probe, int64_t bytes = 1,
                               std::optional<TimePoint> deadline = std::nullopt) {
  return std::make_unique<ProbeJob>(id, bytes, probe, deadline);
}

const ManualClock kClock{};
constexpr PromptPool::Limits kOneThread{.threads = 1, .max_jobs = 2, .max_bytes = 100};

TEST(PromptPoolTest, AJobIsPreparedAndFinishedOnce) {
  Probe probe;
  PromptPool pool(kOneThread, kClock, [](RequestId) { FAIL(); });
  EXPECT_EQ(pool.TryAdd(Job(1, probe)), nullptr);
  EXPECT_TRUE(probe.WaitFinished().ok());
  EXPECT_TRUE(pool.WaitIdle(TimePoint::max()));
  EXPECT_EQ(probe.Finishes(), 1);
}

TEST(PromptPoolTest, RefusesJobsAndBytesOverItsLimits) {
  Probe running, one, two, three;
  running.Close();
  PromptPool pool(kOneThread, kClock, [](RequestId) {});
  EXPECT_EQ(pool.TryAdd(Job(1, running)), nullptr);
  running.WaitEntered();
  EXPECT_EQ(pool.TryAdd(Job(2, one, 60)), nullptr);
  EXPECT_NE(pool.TryAdd(Job(3, two, 41)), nullptr) << "bytes";
  EXPECT_EQ(pool.TryAdd(Job(4, two, 40)), nullptr);
  EXPECT_NE(pool.TryAdd(Job(5, three, 0)), nullptr) << "jobs";
  running.Open();
  EXPECT_TRUE(pool.WaitIdle(TimePoint::max()));
  EXPECT_EQ(two.Finishes(), 1);
  EXPECT_EQ(three.Finishes(), 0);
}

TEST(PromptPoolTest, AJobLargerThanTheByteLimitIsTakenWhenNothingWaits) {
  Probe probe;
  PromptPool pool(kOneThread, kClock, [](RequestId) {});
  EXPECT_EQ(pool.TryAdd(Job(1, probe, 1000)), nullptr);
  EXPECT_TRUE(probe.WaitFinished().ok());
}

TEST(PromptPoolTest, AJobWhoseDeadlineHasPassedDoesNotWaitForTheOthersWork) {
  ManualClock clock;
  Probe running, before, late;
  running.Close();
  before.Close();
  PromptPool pool(kOneThread, clock, [](RequestId) {});
  ASSERT_EQ(pool.TryAdd(Job(1, running)), nullptr);
  running.WaitEntered();
  const TimePoint soon = clock.Now() + std::chrono::seconds(1);
  ASSERT_EQ(pool.TryAdd(Job(2, before, 1, soon + std::chrono::seconds(1))), nullptr);
  ASSERT_EQ(pool.TryAdd(Job(3, late, 1, soon)), nullptr);
  clock.Advance(std::chrono::seconds(1));
  running.Open();
  EXPECT_TRUE(late.WaitFinished().ok());  // Its Prepare would have seen the deadline.
  EXPECT_EQ(before.Finishes(), 0);
  before.Open();
  EXPECT_TRUE(before.WaitFinished().ok());
}

TEST(PromptPoolTest, CancellingAQueuedJobFinishesItAtOnceWithoutPreparingIt) {
  Probe running, queued;
  running.Close();
  PromptPool pool(kOneThread, kClock, [](RequestId) { FAIL(); });
  ASSERT_EQ(pool.TryAdd(Job(1, running)), nullptr);
  running.WaitEntered();
  ASSERT_EQ(pool.TryAdd(Job(2, queued)), nullptr);
  EXPECT_TRUE(pool.Cancel(RequestId{2}));
  EXPECT_EQ(queued.WaitFinished().code(), StatusCode::kCancelled);
  EXPECT_FALSE(pool.Cancel(RequestId{2}));
  running.Open();
  EXPECT_TRUE(pool.WaitIdle(TimePoint::max()));
  MutexLock lock(queued.mutex);
  EXPECT_FALSE(queued.entered);
  EXPECT_EQ(queued.finishes, 1);
}

TEST(PromptPoolTest, CancellingARunningJobTurnsItsEndIntoCancelled) {
  Probe running;
  running.Close();
  PromptPool pool(kOneThread, kClock,
                  [](RequestId) { FAIL() << "it was not handed over"; });
  ASSERT_EQ(pool.TryAdd(Job(1, running)), nullptr);
  running.WaitEntered();
  EXPECT_TRUE(pool.Cancel(RequestId{1}));
  running.Open();
  EXPECT_EQ(running.WaitFinished().code(), StatusCode::kCancelled);
}

// A Finish that blocks, so that a cancel can fall into it.
class SlowFinishJob final : public PromptJob {
 public:
  explicit SlowFinishJob(Probe& probe) : probe_(probe) {}
  RequestId id() const override { return RequestId{7}; }
  int64_t bytes() const override { return 0; }
  std::optional<TimePoint> deadline() const override { return std::nullopt; }
  Status Prepare() override { return OkStatus(); }
  void Finish(Status status) override {
    MutexLock lock(probe_.mutex);
    probe_.status = std::move(status);
    probe_.entered = true;
    probe_.changed.NotifyAll();
    while (!probe_.open) probe_.changed.Wait(probe_.mutex);
  }

 private:
  Probe& probe_;
};

TEST(PromptPoolTest, ACancelDuringTheHandOverReachesWhoeverGotTheJob) {
  Probe probe;
  probe.Close();
  std::atomic<uint64_t> late{0};
  auto pool = std::make_unique<PromptPool>(
      kOneThread, kClock, [&](RequestId id) { late = static_cast<uint64_t>(id); });
  ASSERT_EQ(pool->TryAdd(std::make_unique<SlowFinishJob>(probe)), nullptr);
  probe.WaitEntered();
  EXPECT_TRUE(pool->Cancel(RequestId{7}));
  EXPECT_EQ(late, 0u);
  probe.Open();
  pool.reset();  // Joins the thread.
  EXPECT_EQ(late, 7u);
  MutexLock lock(probe.mutex);
  EXPECT_TRUE(probe.status.ok());
}

TEST(PromptPoolTest, DestructionFinishesWhatWaits) {
  Probe running, queued;
  running.Close();
  auto pool = std::make_unique<PromptPool>(kOneThread, kClock, [](RequestId) {});
  ASSERT_EQ(pool->TryAdd(Job(1, running)), nullptr);
  running.WaitEntered();
  ASSERT_EQ(pool->TryAdd(Job(2, queued)), nullptr);
  running.Open();
  pool.reset();
  EXPECT_EQ(running.Finishes(), 1);
  EXPECT_EQ(queued.Finishes(), 1);
}

TEST(PromptPoolTest, ManyThreadsAndCancelsLoseAndDoubleNothing) {
  constexpr int kJobs = 400;
  std::vector<std::unique_ptr<Probe>> probes;
  for (int i = 0; i < kJobs; ++i) probes.push_back(std::make_unique<Probe>());
  std::atomic<int> refused{0};
  {
    PromptPool pool({.threads = 2, .max_jobs = 8, .max_bytes = 1000}, kClock,
                    [](RequestId) {});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = t; i < kJobs; i += 4) {
          const auto id = static_cast<uint64_t>(i + 1);
          if (pool.TryAdd(Job(id, *probes[static_cast<size_t>(i)])) != nullptr) {
            ++refused;
            MutexLock lock(probes[static_cast<size_t>(i)]->mutex);
            probes[static_cast<size_t>(i)]->finishes = -1;
          }
          if (i % 3 == 0) pool.Cancel(RequestId{id});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  int refused_seen = 0;
  for (const auto& probe : probes) {
    EXPECT_EQ(std::abs(probe->Finishes()), 1);
    refused_seen += probe->Finishes() == -1;
  }
  EXPECT_EQ(refused_seen, refused);
}

}  // namespace
}  // namespace renga
