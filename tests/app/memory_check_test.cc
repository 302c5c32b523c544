// The memory check over a ledger, a heap and a process that a test makes up.

#include "app/memory_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "tests/fakes/manual_clock.h"

namespace renga {
namespace {

using testing::HasSubstr;

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kPageBytes = 256 * kKiB;
constexpr int64_t kOpenPageBytes = 4 * kMiB;

// A server without a server: it serves requests on a fake allocator, which may forget to
// give something back.
class MemoryCheckTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(ConfigureLog("error", "text").ok()); }

  // Ten requests, each with a booking and a heap block of its own, then a look.
  void ServeAndLook(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      for (int request = 0; request < 10; ++request) {
        const MemoryBooking prompt(MemoryPurpose::kRequests, 3000, ledger_);
        system_.heap_bytes += heap_leak_per_request_;
        ledger_.Add(MemoryPurpose::kRequests, ledger_leak_per_request_, 0);
        metrics_.CountRequest(RequestOutcome::kOk, std::chrono::milliseconds(5));
      }
      clock_.Advance(std::chrono::seconds(10));
      check_.Look();
    }
  }

  bool Suspected(const std::string& purpose) {
    for (const MemoryReport::Row& row : check_.Report().rows) {
      if (row.purpose == purpose) return row.leak_suspected;
    }
    ADD_FAILURE() << purpose;
    return false;
  }
  std::vector<std::string> AllSuspected() {
    std::vector<std::string> names;
    for (const MemoryReport::Row& row : check_.Report().rows) {
      if (row.leak_suspected) names.push_back(row.purpose);
    }
    return names;
  }

  void PublishPages(int64_t used, int64_t cached) {
    EngineSnapshot engine;
    engine.pages_total = 1000;
    engine.pages_cached = cached;
    engine.pages_free = 1000 - used - cached;
    board_.Publish(engine);
  }

  ManualClock clock_;
  MemoryLedger ledger_;
  SnapshotBoard board_;
  ServerMetrics metrics_{"tiny", "cpu", {.clock = &clock_}};
  SystemMemory system_{.heap_bytes = 20 * kMiB, .resident_bytes = 300 * kMiB};
  int64_t heap_leak_per_request_ = 0;
  int64_t ledger_leak_per_request_ = 0;
  MemoryCheck check_{{.ledger = ledger_,
                      .board = board_,
                      .metrics = metrics_,
                      .clock = clock_,
                      .kv_page_bytes = kPageBytes,
                      .kv_open_page_bytes = kOpenPageBytes,
                      .system = [this] { return system_; }}};
};

TEST_F(MemoryCheckTest, AServerThatGivesEverythingBackIsNotSuspected) {
  ServeAndLook(1000);
  EXPECT_THAT(AllSuspected(), testing::IsEmpty());
}

TEST_F(MemoryCheckTest, AKibibytePerRequestThatStaysBookedIsRaised) {
  ledger_leak_per_request_ = kKiB;
  ServeAndLook(500);
  EXPECT_THAT(AllSuspected(), testing::ElementsAre("requests"));
}

TEST_F(MemoryCheckTest, AKibibytePerRequestThatStaysOnTheHeapIsRaised) {
  heap_leak_per_request_ = kKiB;
  ServeAndLook(500);
  EXPECT_THAT(AllSuspected(), testing::ElementsAre("heap"));
}

TEST_F(MemoryCheckTest, OneBigBufferThatIsNeverGivenBackIsRaised) {
  ServeAndLook(100);
  auto forgotten =
      std::make_unique<MemoryBooking>(MemoryPurpose::kActivations, 64 * kMiB, ledger_);
  ServeAndLook(150);
  EXPECT_THAT(AllSuspected(), testing::ElementsAre("activations"));
  forgotten.reset();
  ServeAndLook(100);
  EXPECT_THAT(AllSuspected(), testing::IsEmpty());
}

TEST_F(MemoryCheckTest, MemoryThatNobodyBooksIsRaisedAsTheProcesss) {
  for (int i = 0; i < 600; ++i) {
    system_.resident_bytes += 256 * kKiB;
    ServeAndLook(1);
  }
  EXPECT_THAT(AllSuspected(), testing::ElementsAre("process"));
}

TEST_F(MemoryCheckTest, APoolThatFillsWithCachedPrefixesIsNoLeak) {
  // Slowly, over hours: pages are touched, and their bookkeeping grows with them.
  for (int64_t page = 0; page < 1000; ++page) {
    PublishPages(0, page);
    system_.resident_bytes += kPageBytes + 4000;
    system_.heap_bytes += 4000;
    ledger_.Add(MemoryPurpose::kPrefixCache, 4000);
    ServeAndLook(3);
    ASSERT_THAT(AllSuspected(), testing::IsEmpty()) << page;
  }
  ServeAndLook(500);
  EXPECT_THAT(AllSuspected(), testing::IsEmpty());
  // What grows although the pool is full does leak.
  for (int i = 0; i < 200; ++i) {
    ledger_.Add(MemoryPurpose::kPrefixCache, 4000);
    ServeAndLook(1);
  }
  EXPECT_TRUE(Suspected("prefix_cache"));
}

// What the process grows by while pages fill on a GPU is not theirs.
TEST_F(MemoryCheckTest, PagesOnAGpuExplainNoMemoryOfTheProcess) {
  MemoryCheck check({.ledger = ledger_,
                     .board = board_,
                     .metrics = metrics_,
                     .clock = clock_,
                     .kv_page_bytes = kPageBytes,
                     .kv_open_page_bytes = kOpenPageBytes,
                     .kv_on_gpu = true,
                     .system = [this] { return system_; }});
  for (int64_t page = 0; page < 600; ++page) {
    PublishPages(0, page);
    system_.resident_bytes += kPageBytes;
    metrics_.CountRequest(RequestOutcome::kOk, std::chrono::milliseconds(5));
    clock_.Advance(std::chrono::seconds(10));
    check.Look();
  }
  const MemoryReport report = check.Report();
  EXPECT_TRUE(report.rows[kProcessRow].leak_suspected);
  EXPECT_EQ(report.kv_page_bytes, kPageBytes);
}

TEST_F(MemoryCheckTest, OpenPagesOfEverMoreSequencesAreNoLeak) {
  for (int64_t running = 1; running <= 64; ++running) {
    EngineSnapshot engine;
    engine.max_sequences = 64;
    engine.running = running;
    board_.Publish(engine);
    system_.resident_bytes += kOpenPageBytes;  // That of the newest.
    ServeAndLook(1);
    engine.running = 0;
    board_.Publish(engine);
    ServeAndLook(9);
  }
  EXPECT_THAT(AllSuspected(), testing::IsEmpty());
}

TEST_F(MemoryCheckTest, WhatRunningRequestsHoldIsNoLeak) {
  std::vector<MemoryBooking> running;
  for (int i = 0; i < 300; ++i) {
    running.emplace_back(MemoryPurpose::kRequests, 50 * kKiB, ledger_);
    system_.heap_bytes += 50 * kKiB;
    EngineSnapshot engine;
    engine.running = i + 1;
    board_.Publish(engine);
    ServeAndLook(1);
  }
  EXPECT_THAT(AllSuspected(), testing::IsEmpty());
}

// As many of them, with as many pages, may ask for longer and longer answers.
TEST_F(MemoryCheckTest, WhatRunningRequestsReserveIsNoLeak) {
  for (int64_t i = 0; i < 300; ++i) {
    const int64_t bytes = (i + 1) * 50 * kKiB;
    const MemoryBooking running(MemoryPurpose::kRequests, bytes, ledger_);
    EngineSnapshot engine;
    engine.running = 3;
    engine.request_bytes = bytes;
    board_.Publish(engine);
    ServeAndLook(1);
  }
  EXPECT_THAT(AllSuspected(), testing::IsEmpty());
}

TEST_F(MemoryCheckTest, EachLookIsShownAsMetrics) {
  ledger_.Add(MemoryPurpose::kWeights, 1234, 5);
  check_.Look();
  const std::string text = metrics_.Serialize();
  EXPECT_THAT(text,
              HasSubstr(R"(renga_memory_bytes{model="tiny",purpose="weights"} 1234)"));
  EXPECT_THAT(text,
              HasSubstr(R"(renga_memory_buffers{model="tiny",purpose="weights"} 5)"));
  EXPECT_THAT(text,
              HasSubstr(R"(renga_memory_bytes{model="tiny",purpose="heap"} 20971520)"));
  EXPECT_THAT(
      text,
      HasSubstr(R"(renga_memory_leak_suspected{model="tiny",purpose="requests"} 0)"));
  ledger_leak_per_request_ = kKiB;
  ServeAndLook(500);
  EXPECT_THAT(
      metrics_.Serialize(),
      HasSubstr(R"(renga_memory_leak_suspected{model="tiny",purpose="requests"} 1)"));
}

TEST_F(MemoryCheckTest, EachChangeIsOneLineInTheLog) {
  testing::internal::CaptureStderr();
  ASSERT_TRUE(ConfigureLog("info", "text").ok());
  ServeAndLook(100);
  ledger_.Add(MemoryPurpose::kOther, 64 * kMiB);
  ServeAndLook(200);
  ledger_.Remove(MemoryPurpose::kOther, 64 * kMiB);
  ServeAndLook(200);
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2) << lines;
  EXPECT_THAT(lines, HasSubstr("memory_leak_suspected purpose=other"));
  EXPECT_THAT(lines, HasSubstr("memory_leak_not_seen_any_more purpose=other"));
}

TEST_F(MemoryCheckTest, TheReportHasEveryPurposeAndThePages) {
  PublishPages(30, 100);
  ledger_.Add(MemoryPurpose::kKvPool, 999);
  const MemoryReport report = check_.Report();
  ASSERT_EQ(report.rows.size(), kMemoryRows);
  EXPECT_EQ(report.rows[static_cast<size_t>(MemoryPurpose::kKvPool)].bytes, 999);
  EXPECT_EQ(report.rows[kHeapRow].purpose, "heap");
  EXPECT_EQ(report.rows[kHeapRow].bytes, 20 * kMiB);
  EXPECT_EQ(report.rows[kProcessRow].bytes, 300 * kMiB);
  EXPECT_EQ(report.kv_pages_total, 1000);
  EXPECT_EQ(report.kv_pages_used, 30);
  EXPECT_EQ(report.kv_pages_cached, 100);
  EXPECT_EQ(report.kv_page_bytes, kPageBytes);
}

TEST_F(MemoryCheckTest, AThreadLooksUntilTheCheckEnds) {
  std::atomic<int> looks{0};
  MemoryCheck check({.ledger = ledger_,
                     .board = board_,
                     .metrics = metrics_,
                     .clock = clock_,
                     .kv_page_bytes = 1,
                     .system = [&] {
                       ++looks;
                       return SystemMemory{};
                     }});
  check.Start(std::chrono::microseconds(10));
  while (looks < 5) std::this_thread::yield();
}

TEST(MemoryCheckGpuTest, ALookShowsWhatTheGpuSays) {
  const ManualClock clock;
  const MemoryLedger ledger;
  const SnapshotBoard board;
  ServerMetrics metrics("tiny", "cuda:0/NVIDIA A10G", {.clock = &clock});
  double watts = 100.0;
  MemoryCheck check(
      {.ledger = ledger,
       .board = board,
       .metrics = metrics,
       .clock = clock,
       .gpu = [&watts] { return GpuFigures{.gpu = "0", .power_watts = watts}; }});
  EXPECT_THAT(metrics.Serialize(), testing::Not(HasSubstr("renga_gpu_power_watts")));
  check.Look();
  EXPECT_THAT(metrics.Serialize(), HasSubstr("gpu=\"0\"} 100\n"));
  watts = 300.0;
  check.Look();
  EXPECT_THAT(metrics.Serialize(), HasSubstr("gpu=\"0\"} 300\n"));
}

TEST(ReadSystemMemoryTest, WhatMallocGivesOutIsSeen) {
  const SystemMemory before = ReadSystemMemory();
  EXPECT_GT(before.resident_bytes, kMiB);
  if (before.heap_bytes == 0) GTEST_SKIP() << "a sanitizer's own heap";
  const std::vector<char> small(100 * kKiB, 1);
  const std::vector<char> large(32 * kMiB, 1);
  EXPECT_GE(ReadSystemMemory().heap_bytes, before.heap_bytes + 32 * kMiB + 90 * kKiB);
}

}  // namespace
}  // namespace renga
