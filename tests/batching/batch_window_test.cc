// BatchWindow: every rule at made-up times, then random traffic against a plain model.

#include "batching/batch_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace renga {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr RequestId kA{1}, kB{2}, kC{3}, kD{4};

TimePoint At(int ms) { return TimePoint{} + milliseconds(ms); }

EngineState Idle(int64_t free_pages = 1000) {
  return {.busy = false, .free_pages = free_pages, .evictable_pages = 0, .running = 0};
}
EngineState Busy(int64_t free_pages = 1000, int32_t running = 1) {
  return {
      .busy = true, .free_pages = free_pages, .evictable_pages = 0, .running = running};
}

TEST(BatchWindowTest, ALoneRequestLeavesAtOnceWhileTheEngineIsIdle) {
  BatchWindow window({});
  window.Add(kA, 10, At(0));
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kA)));
  EXPECT_EQ(window.size(), 0);
  EXPECT_EQ(window.waiting_tokens(), 0);
}

TEST(BatchWindowTest, WhileTheEngineIsBusyTheOldestWaitsTheWindowAndAllLeaveWithIt) {
  BatchWindow window({});
  window.Add(kA, 10, At(0));
  window.Add(kB, 12, At(30));
  EXPECT_THAT(window.TakeReady(At(49), Busy()), IsEmpty());
  EXPECT_EQ(window.NextDeadline(), At(50));
  EXPECT_THAT(window.TakeReady(At(50), Busy()), ElementsAre(ElementsAre(kA, kB)));
  EXPECT_EQ(window.NextDeadline(), std::nullopt);
}

TEST(BatchWindowTest, AnEngineThatFallsIdleEndsTheWindow) {
  BatchWindow window({});
  window.Add(kA, 10, At(0));
  EXPECT_THAT(window.TakeReady(At(10), Busy()), IsEmpty());
  EXPECT_THAT(window.TakeReady(At(11), Idle()), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, WithoutLeaveWhenIdleTheWindowAlwaysCounts) {
  BatchWindow window({.leave_when_idle = false});
  window.Add(kA, 10, At(0));
  EXPECT_THAT(window.TakeReady(At(49), Idle()), IsEmpty());
  EXPECT_THAT(window.TakeReady(At(50), Idle()), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, MoreThanTheThresholdLeaveAtOnce) {
  BatchWindow window({.queue_threshold = 2});
  window.Add(kA, 10, At(0));
  window.Add(kB, 10, At(0));
  EXPECT_THAT(window.TakeReady(At(0), Busy()), IsEmpty());
  window.Add(kC, 10, At(0));
  EXPECT_THAT(window.TakeReady(At(0), Busy()), ElementsAre(ElementsAre(kA, kB, kC)));
}

TEST(BatchWindowTest, ContinuousKnowsNoWindow) {
  BatchWindow window({.policy = BatchPolicy::kContinuous});
  window.Add(kA, 10, At(0));
  EXPECT_THAT(window.TakeReady(At(0), Busy()), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, SerialRunsOneAtATimeInOrder) {
  BatchWindow window({.policy = BatchPolicy::kSerial});
  window.Add(kA, 500, At(0));
  window.Add(kB, 10, At(0));
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kA)));
  EXPECT_THAT(window.TakeReady(At(999), Busy()), IsEmpty());
  EXPECT_THAT(window.TakeReady(At(999), Idle()), ElementsAre(ElementsAre(kB)));
}

TEST(BatchWindowTest, WhatLeavesIsSortedAndCutIntoBatchesOfSimilarLength) {
  BatchWindow window({});
  window.Add(kA, 2000, At(0));
  window.Add(kB, 64, At(0));
  window.Add(kC, 1, At(0));
  window.Add(kD, 66, At(0));  // 64 + 1 is the longest that shares C's batch.
  EXPECT_THAT(window.TakeReady(At(0), Idle()),
              ElementsAre(ElementsAre(kC, kB), ElementsAre(kD), ElementsAre(kA)));
}

TEST(BatchWindowTest, NoMoreThanMaxBatchLeaveTogetherAndTheOldestGoFirst) {
  BatchWindow window({.max_batch = 2});
  window.Add(kA, 30, At(0));
  window.Add(kB, 20, At(0));
  window.Add(kC, 10, At(0));
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kB, kA)));
  EXPECT_THAT(window.TakeReady(At(0), Busy()), ElementsAre(ElementsAre(kC)))
      << "it was let go already";
}

TEST(BatchWindowTest, NoMoreRunThanMaxSequences) {
  BatchWindow window({.max_sequences = 4});
  window.Add(kA, 1, At(0));
  window.Add(kB, 1, At(0));
  EXPECT_THAT(window.TakeReady(At(99), Busy(1000, 4)), IsEmpty());
  EXPECT_EQ(window.NextDeadline(), std::nullopt) << "only a free place can help";
  EXPECT_THAT(window.TakeReady(At(99), Busy(1000, 3)), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, LeavesOnlyWithPagesForThePromptAndOneForEveryRunning) {
  BatchWindow window({});
  window.Add(kA, 129, At(0));  // Three pages.
  EXPECT_THAT(window.TakeReady(At(50), Busy(6, 4)), IsEmpty());
  EXPECT_THAT(window.TakeReady(At(50), Busy(7, 4)), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, ThoseWhoLeaveTogetherCountAsRunning) {
  BatchWindow window({});
  window.Add(kA, 64, At(0));
  window.Add(kB, 64, At(0));
  EXPECT_THAT(window.TakeReady(At(0), Idle(2)), ElementsAre(ElementsAre(kA)));
  EXPECT_THAT(window.TakeReady(At(0), Busy(2, 1)), ElementsAre(ElementsAre(kB)));
}

TEST(BatchWindowTest, EvictablePagesCountAsFree) {
  BatchWindow window({});
  window.Add(kA, 640, At(0));
  EXPECT_THAT(window.TakeReady(At(0), {.free_pages = 4, .evictable_pages = 6}),
              ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, ARequestThatDoesNotFitIsOvertakenAtMostMaxOvertakesTimes) {
  BatchWindow window({.max_overtakes = 3});
  window.Add(RequestId{100}, 64 * 7, At(0));
  int passed = 0;
  for (uint64_t id = 1; id <= 10; ++id) {
    window.Add(RequestId{id}, 1, At(0));
    passed += static_cast<int>(window.TakeReady(At(100), Busy(4, 1)).size());
  }
  EXPECT_EQ(passed, 3);
  const auto batches = window.TakeReady(At(100), Idle(8));
  EXPECT_THAT(batches.back(), ElementsAre(RequestId{100})) << "room: it goes first";
}

TEST(BatchWindowTest, APreemptedRequestReturnsToTheFrontAndNobodyPassesIt) {
  BatchWindow window({});
  window.Add(kA, 1, At(10));
  window.AddPreempted(kC, 300, At(5));
  window.AddPreempted(kB, 300, At(2));
  EXPECT_THAT(window.TakeReady(At(20), Busy(5, 1)), IsEmpty()) << "B needs 5 + 1";
  EXPECT_THAT(window.TakeReady(At(20), Busy(6, 1)), ElementsAre(ElementsAre(kB)))
      << "at once, without a window; C was preempted too, but arrived later";
}

TEST(BatchWindowTest, RemovedRequestsNeverLeave) {
  BatchWindow window({});
  window.Add(kA, 10, At(0));
  window.Add(kB, 10, At(0));
  EXPECT_TRUE(window.Remove(kA));
  EXPECT_FALSE(window.Remove(kA));
  EXPECT_EQ(window.waiting_tokens(), 10);
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kB)));
}

TEST(BatchWindowTest, PressureHalvesTheLargestBatchAndQuietLetsItGrow) {
  BatchWindow window({.max_batch = 8});
  window.NotePressure(At(0));
  window.NotePressure(At(0));
  EXPECT_EQ(window.current_max_batch(), 2);
  (void)window.TakeReady(At(999), Idle());
  EXPECT_EQ(window.current_max_batch(), 2);
  (void)window.TakeReady(At(3000), Idle());
  EXPECT_EQ(window.current_max_batch(), 5);
  for (int i = 0; i < 10; ++i) window.NotePressure(At(3000));
  EXPECT_EQ(window.current_max_batch(), 1);
  (void)window.TakeReady(At(1'000'000), Idle());
  EXPECT_EQ(window.current_max_batch(), 8);
}

TEST(BatchWindowTest, UnknownPoliciesAreRefusedByName) {
  EXPECT_EQ(*ParseBatchPolicy("serial"), BatchPolicy::kSerial);
  EXPECT_EQ(ParseBatchPolicy("fair").status().field(), "scheduler.policy");
}

// Against a plain model of an engine with 12 pages: under any traffic nothing is lost or
// doubled, the memory rule holds, nobody is overtaken more often than allowed, and nobody
// is kept past the window while there was room.
class RandomTraffic {
 public:
  explicit RandomTraffic(uint32_t seed) : rng_(seed) {}

  void Run(int steps) {
    for (int step = 0; step < steps; ++step) {
      now_ += milliseconds(rng_() % 20);
      if (rng_() % 3 != 0) Arrive();
      if (rng_() % 4 == 0) RemoveOne();
      if (rng_() % 5 == 0) PreemptOne();
      if (rng_() % 2 == 0) FinishOne();
      Take();
      if (testing::Test::HasFatalFailure()) return;
    }
    while (!waiting_.empty() || !running_.empty()) {
      now_ += milliseconds(60);
      FinishOne();
      Take();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(left_.size() + removed_, next_ - 1) << "lost or doubled";
    EXPECT_EQ(window_.size(), 0);
  }

 private:
  struct Item {
    int64_t pages;
    TimePoint arrival;
    int overtaken = 0;
  };
  static constexpr int64_t kPages = 12;
  static constexpr int kPlaces = 5;

  void Arrive() {
    const int64_t tokens =
        1 + static_cast<int64_t>(rng_() % (rng_() % 8 == 0 ? 768 : 128));
    window_.Add(RequestId{next_}, tokens, now_);
    waiting_[next_++] = {.pages = (tokens + 63) / 64, .arrival = now_};
  }
  void RemoveOne() {
    if (waiting_.empty()) return;
    const uint64_t id = waiting_.begin()->first;
    if (left_.contains(id)) return;  // A preempted one would be counted twice.
    EXPECT_TRUE(window_.Remove(RequestId{id}));
    waiting_.erase(id);
    ++removed_;
  }
  void PreemptOne() {
    if (running_.size() < 2) return;
    const auto youngest = std::prev(running_.end());
    window_.AddPreempted(RequestId{youngest->first}, youngest->second.pages * 64,
                         youngest->second.arrival);
    waiting_[youngest->first] = {.pages = youngest->second.pages,
                                 .arrival = youngest->second.arrival};
    running_.erase(youngest);
  }
  void FinishOne() {
    if (!running_.empty()) running_.erase(running_.begin());
  }
  int64_t Used() const {
    int64_t used = 0;
    for (const auto& [id, item] : running_) used += item.pages;
    return used;
  }
  void Take() {
    const EngineState state{.busy = !running_.empty(),
                            .free_pages = kPages - Used(),
                            .evictable_pages = 0,
                            .running = static_cast<int32_t>(running_.size())};
    std::vector<uint64_t> gone;
    for (const auto& batch : window_.TakeReady(now_, state)) {
      ASSERT_FALSE(batch.empty());
      for (const RequestId id : batch) gone.push_back(static_cast<uint64_t>(id));
    }
    std::vector<uint64_t> first_time;  // Not those who return from a preemption.
    for (const uint64_t id : gone) {
      if (!left_.contains(id)) first_time.push_back(id);
      Leave(id);
    }
    for (const uint64_t id : first_time) CountOvertakes(id);
    if (!gone.empty()) {
      ASSERT_LE(Used() + static_cast<int64_t>(running_.size()) - 1, kPages);
      ASSERT_LE(running_.size(), size_t{kPlaces});
    }
    ASSERT_TRUE(!running_.empty() || waiting_.empty()) << "an idle engine waits";
    ASSERT_GT(window_.NextDeadline().value_or(TimePoint::max()), now_)
        << "kept past the window";
  }
  void Leave(uint64_t id) {
    ASSERT_TRUE(waiting_.contains(id)) << "left twice";
    running_[id] = waiting_[id];
    waiting_.erase(id);
    left_.insert(id);
  }
  void CountOvertakes(uint64_t id) {
    for (auto& [other, item] : waiting_) {
      if (other > id || left_.contains(other)) continue;
      ASSERT_LE(++item.overtaken, 4);
    }
  }

  std::mt19937 rng_;
  BatchWindow window_{{.max_sequences = kPlaces, .max_overtakes = 4}};
  TimePoint now_ = At(0);
  uint64_t next_ = 1;
  size_t removed_ = 0;
  std::map<uint64_t, Item> waiting_, running_;
  std::set<uint64_t> left_;
};

TEST(BatchWindowTest, RandomTrafficLosesNothingAndKeepsEveryBound) {
  for (uint32_t seed = 1; seed <= 5; ++seed) RandomTraffic(seed).Run(3000);
}

}  // namespace
}  // namespace renga
