#include "metrics/process_stats.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <thread>
#include <vector>

namespace renga {
namespace {

TEST(ProcessStatsTest, EveryFigureIsThereAndPlausible) {
  const ProcessStats stats = ReadProcessStats();
  EXPECT_GT(stats.resident_bytes, 1e6);
  EXPECT_GE(stats.virtual_bytes, stats.resident_bytes);
  EXPECT_GE(stats.threads, 1.0);
  EXPECT_GE(stats.open_descriptors, 3.0);
  EXPECT_GE(stats.max_descriptors, stats.open_descriptors);
  const auto now = static_cast<double>(std::time(nullptr));
  EXPECT_LE(stats.start_seconds, now + 1.0);
  EXPECT_GT(stats.start_seconds, now - 24.0 * 3600.0);
}

TEST(ProcessStatsTest, AnOpenFileIsCounted) {
  const double before = ReadProcessStats().open_descriptors;
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  EXPECT_EQ(ReadProcessStats().open_descriptors, before + 1.0);
  close(file);
  EXPECT_EQ(ReadProcessStats().open_descriptors, before);
}

TEST(ProcessStatsTest, ProcessorTimeGrowsWithWork) {
  const double before = ReadProcessStats().cpu_seconds;
  const std::clock_t end = std::clock() + CLOCKS_PER_SEC / 20;
  while (std::clock() < end) {
  }
  EXPECT_GE(ReadProcessStats().cpu_seconds, before + 0.03);
}

}  // namespace
}  // namespace renga
