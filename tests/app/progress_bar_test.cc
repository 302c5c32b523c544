#include "app/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <sstream>

#include "tests/fakes/manual_clock.h"

namespace renga {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

int64_t Lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\r');
}

TEST(FormatProgressTest, ShowsShareBarAndTimeLeft) {
  EXPECT_EQ(FormatProgress("Loading", 0, 10, Duration{}),
            "Loading  [>                             ]   0%");
  EXPECT_EQ(FormatProgress("Loading", 5, 10, seconds(4)),
            "Loading  [===============>              ]  50%  4 s left");
  EXPECT_EQ(FormatProgress("Loading", 10, 10, seconds(7)),
            "Loading  [==============================] 100%  7 s");
}

TEST(FormatProgressTest, NoTimeIsGuessedFromTooLittle) {
  EXPECT_THAT(FormatProgress("x", 5, 10, milliseconds(999)), EndsWith(" 50%"));
  EXPECT_THAT(FormatProgress("x", 0, 10, seconds(30)), EndsWith("  0%"));
}

TEST(FormatProgressTest, LongTimesGetLargerUnits) {
  EXPECT_THAT(FormatProgress("x", 1, 11, seconds(60)), EndsWith("10 min left"));
  EXPECT_THAT(FormatProgress("x", 1, 101, seconds(3600)), EndsWith("100 h left"));
}

TEST(FormatProgressTest, StaysBelow80ColumnsWhateverTheNumbers) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t done : {int64_t{-1}, int64_t{0}, int64_t{1}, kMax}) {
    for (const int64_t total : {int64_t{-5}, int64_t{0}, int64_t{1}, kMax}) {
      EXPECT_LT(
          FormatProgress(std::string(200, 'x'), done, total, Duration::max()).size(),
          80u);
    }
  }
}

TEST(ProgressBarTest, IsSilentUnlessEnabled) {
  std::ostringstream out;
  {
    ProgressBar bar(out, "Loading", 10, false);
    bar.Update(5);
    bar.Finish();
  }
  EXPECT_EQ(out.str(), "");
}

TEST(ProgressBarTest, DrawsAtMostTenTimesASecond) {
  std::ostringstream out;
  const auto clock = std::make_unique<ManualClock>();
  ProgressBar bar(out, "Loading", 1000, true, *clock);
  for (int64_t i = 0; i < 1000; ++i) {
    bar.Update(i);
    clock->Advance(milliseconds(1));
  }
  EXPECT_EQ(Lines(out.str()), 10);
}

TEST(ProgressBarTest, FinishShowsTheWholeAndEndsTheLineOnce) {
  std::ostringstream out;
  const auto clock = std::make_unique<ManualClock>();
  {
    ProgressBar bar(out, "Loading", 10, true, *clock);
    bar.Update(1);
    bar.Finish();  // At once: not held back by the last drawing.
    bar.Finish();
    bar.Update(3);
  }
  EXPECT_THAT(out.str(), HasSubstr("] 100%\n"));
  EXPECT_THAT(out.str(), EndsWith("\n"));
  EXPECT_EQ(Lines(out.str()), 2);
}

TEST(ProgressBarTest, WorkThatFailsLeavesAnEmptyLine) {
  std::ostringstream out;
  {
    ProgressBar bar(out, "Loading", 10, true);
    bar.Update(1);
  }
  EXPECT_THAT(out.str(), StartsWith("\r\x1b[KLoading"));
  EXPECT_THAT(out.str(), EndsWith("\r\x1b[K"));
}

}  // namespace
}  // namespace renga
