#include "app/app_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>

#include "base/log.h"
#include "tests/fakes/manual_clock.h"

namespace renga {
namespace {

using testing::HasSubstr;
using testing::Not;

class AppControlTest : public testing::Test {
 protected:
  AppControl Control(Duration flush_timeout = std::chrono::minutes(1)) {
    return AppControl(
        memory_, queue_, [this] { ++drains_; }, flush_timeout);
  }

  ManualClock clock_;
  MemoryLedger ledger_;
  SnapshotBoard board_;
  ServerMetrics metrics_{"tiny", "cpu"};
  MemoryCheck memory_{{.ledger = ledger_,
                       .board = board_,
                       .metrics = metrics_,
                       .clock = clock_,
                       .kv_page_bytes = 7}};
  WaitQueue queue_{{}};
  int drains_ = 0;
};

TEST_F(AppControlTest, AFlushSaysWhatTheEngineFreed) {
  AppControl control = Control();
  auto flushed = std::async(std::launch::async, [&] { return control.FlushCache(); });
  WaitQueue::Mail mail;
  while (mail.flushes.empty()) mail = queue_.Take(std::nullopt);
  mail.flushes.at(0)(42);
  const StatusOr<int64_t> pages = flushed.get();
  ASSERT_TRUE(pages.ok());
  EXPECT_EQ(*pages, 42);
}

TEST_F(AppControlTest, AnEngineThatDoesNotAnswerIsUnavailableAndMayAnswerLater) {
  AppControl control = Control(Duration(1));
  EXPECT_EQ(control.FlushCache().status().code(), StatusCode::kUnavailable);
  for (const auto& done : queue_.Take(std::nullopt).flushes) done(3);
}

TEST_F(AppControlTest, AFlushOfAServerThatEndsIsUnavailable) {
  AppControl control = Control();
  auto flushed = std::async(std::launch::async, [&] { return control.FlushCache(); });
  WaitQueue::Mail mail;
  while (mail.flushes.empty()) mail = queue_.Take(std::nullopt);
  mail.flushes.at(0)(-1);
  EXPECT_EQ(flushed.get().status().code(), StatusCode::kUnavailable);
  queue_.Close();
  EXPECT_EQ(control.FlushCache().status().code(), StatusCode::kUnavailable);
}

TEST_F(AppControlTest, DrainAndMemoryGoToTheirParts) {
  AppControl control = Control();
  control.StartDrain();
  EXPECT_EQ(drains_, 1);
  EXPECT_EQ(control.ReportMemory().kv_page_bytes, 7);
}

TEST_F(AppControlTest, TheLogLevelChangesAndAWrongOneIsNamed) {
  testing::internal::CaptureStderr();
  ASSERT_TRUE(ConfigureLog("error", "text").ok());
  AppControl control = Control();
  LogInfo("before");
  EXPECT_TRUE(control.SetLogLevel("info").ok());
  LogInfo("after");
  EXPECT_EQ(control.SetLogLevel("loud").field(), "level");
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, Not(HasSubstr("before")));
  EXPECT_THAT(lines, HasSubstr("after"));
}

}  // namespace
}  // namespace renga
