// The pool: every piece exactly once, whatever the sizes, the stealing and the sleeping.

#include "backend/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace renga {
namespace {

using std::chrono::milliseconds;

TEST(ThreadPool, ASettingIsObeyedWithinTheLimitAndZeroIsTheCores) {
  EXPECT_EQ(ThreadPool::CountFor(3), 3);
  EXPECT_EQ(ThreadPool::CountFor(ThreadPool::kMaxThreads + 5), ThreadPool::kMaxThreads);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  EXPECT_EQ(ThreadPool::CountFor(0), std::clamp(cores, 1, ThreadPool::kMaxThreads));
}

TEST(ThreadPool, RunsEveryPieceExactlyOnce) {
  for (int threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    std::mt19937 random(static_cast<uint32_t>(threads));
    for (int region = 0; region < 2000; ++region) {
      const int64_t pieces =
          static_cast<int64_t>(random() % (region % 50 == 0 ? 700 : 9));
      std::vector<int> runs(static_cast<size_t>(pieces),
                            0);  // Plain ints: TSan looks on.
      pool.Run(pieces, [&](int64_t piece, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        ++runs[static_cast<size_t>(piece)];
      });
      for (const int count : runs) ASSERT_EQ(count, 1);
    }
  }
}

// The first pieces of worker 0 wait until all other pieces, also those of its own range,
// have been taken: without stealing this would not end.
TEST(ThreadPool, OthersStealFromASlowOwner) {
  ThreadPool pool(2);
  for (int region = 0; region < 50; ++region) {
    std::atomic<int> others{0};
    pool.Run(10, [&](int64_t piece, int) {
      if (piece != 0) {
        others.fetch_add(1);
        return;
      }
      while (others.load() < 9) std::this_thread::yield();
    });
    EXPECT_EQ(others.load(), 9);
  }
}

TEST(ThreadPool, WhatPiecesWroteIsVisibleAfterTheRegionAndInTheNext) {
  ThreadPool pool(3);
  std::vector<int64_t> values(100, 0);
  std::vector<int64_t> next(100, 0);
  for (int region = 0; region < 500; ++region) {
    pool.Run(100, [&](int64_t piece, int) {
      // Reads what some other worker wrote in the region before, never in this one.
      next[static_cast<size_t>(piece)] = values[static_cast<size_t>(99 - piece)] + 1;
    });
    for (const int64_t value : next) ASSERT_EQ(value, region + 1);
    std::swap(values, next);
  }
}

TEST(ThreadPool, WorkersThatFellAsleepComeBack) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(milliseconds(2));  // Longer than the workers spin.
    std::atomic<int> runs{0};
    std::atomic<int> helped{0};
    // Piece 0 waits for the other one, which only the woken worker can take.
    pool.Run(2, [&](int64_t piece, int worker) {
      if (worker != 0) helped.fetch_add(1);
      runs.fetch_add(1);
      while (piece == 0 && runs.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(runs.load(), 2);
    EXPECT_GE(helped.load(), 1);
  }
}

TEST(ThreadPool, NoPiecesAndManyThreadsEnd) {
  ThreadPool pool(4);
  pool.Run(0, [](int64_t, int) { FAIL(); });
  int runs = 0;
  pool.Run(1, [&](int64_t, int worker) {
    EXPECT_EQ(worker, 0);
    ++runs;
  });
  EXPECT_EQ(runs, 1);
}

TimePoint At(int ms) { return TimePoint{} + milliseconds(ms); }

TEST(SoloRule, StaysWithTheWorkersWhileLittleTimeIsLost) {
  SoloRule rule;
  for (int i = 1; i <= 100; ++i) {
    rule.Add(milliseconds(10), milliseconds(9), At(10 * i));
    ASSERT_FALSE(rule.solo());
  }
}

TEST(SoloRule, WorksAloneAfterAWindowThatLostMoreThanAFifth) {
  SoloRule rule;
  rule.Add(milliseconds(10), milliseconds(5), At(10));
  EXPECT_FALSE(rule.solo());  // Less than a window.
  rule.Add(milliseconds(10), milliseconds(5), At(20));
  EXPECT_TRUE(rule.solo());
  rule.Add(milliseconds(10), milliseconds(10), At(79));
  EXPECT_TRUE(rule.solo());
  rule.Add(milliseconds(10), milliseconds(10), At(80));
  EXPECT_FALSE(rule.solo());  // Probes after 60 ms.
}

TEST(SoloRule, ProbesMoreRarelyEachTimeUpToHalfASecondAndRecovers) {
  SoloRule rule;
  int now = 0;
  for (const int alone : {60, 120, 240, 480, 500, 500}) {
    now += 20;
    rule.Add(milliseconds(20), milliseconds(10), At(now));
    ASSERT_TRUE(rule.solo());
    rule.Add(milliseconds(1), milliseconds(1), At(now + alone - 1));
    ASSERT_TRUE(rule.solo()) << alone;
    now += alone;
    rule.Add(milliseconds(1), milliseconds(1), At(now));
    ASSERT_FALSE(rule.solo()) << alone;
  }
  now += 20;
  rule.Add(milliseconds(20), milliseconds(20), At(now));  // A clean probe.
  now += 20;
  rule.Add(milliseconds(20), milliseconds(10), At(now));
  ASSERT_TRUE(rule.solo());
  rule.Add(milliseconds(1), milliseconds(1), At(now + 60));
  EXPECT_FALSE(rule.solo());
}

}  // namespace
}  // namespace renga
