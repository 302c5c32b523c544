// LoadMeter: shares and means of late, with made-up times.

#include "engine/load_meter.h"

#include <gtest/gtest.h>

namespace renga {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint At(Duration time) { return TimePoint{} + seconds(100) + time; }

TEST(LoadMeterTest, TheCachedShareFollowsTheLatestRequestsByTheirTokens) {
  LoadMeter meter(At({}));
  EXPECT_EQ(meter.cached_share(), 0.0);
  meter.NoteTaken(300, 0);
  meter.NoteTaken(100, 100);
  EXPECT_NEAR(meter.cached_share(), 0.25, 0.02);
  for (int i = 0; i < 100; ++i) meter.NoteTaken(100, 90);
  EXPECT_NEAR(meter.cached_share(), 0.9, 0.01);
}

TEST(LoadMeterTest, ResidenceIsAMeanThatForgets) {
  LoadMeter meter(At({}));
  EXPECT_EQ(meter.residence(), Duration{});
  meter.NoteEnded(milliseconds(100));
  EXPECT_EQ(meter.residence(), milliseconds(100));
  for (int i = 0; i < 100; ++i) meter.NoteEnded(milliseconds(500));
  EXPECT_NEAR(static_cast<double>(meter.residence().count()), 500e6, 5e6);
}

TEST(LoadMeterTest, TheBusyShareCountsTimeInsideStepsOfTheLastSeconds) {
  LoadMeter meter(At({}));
  EXPECT_EQ(meter.busy_share(At({})), 0.0);
  for (int i = 0; i < 100; ++i) {  // Half of two seconds.
    meter.NoteStep(At(milliseconds(20 * i)), At(milliseconds(20 * i + 10)));
  }
  EXPECT_NEAR(meter.busy_share(At(seconds(2))), 0.5, 0.01);
  EXPECT_NEAR(meter.busy_share(At(seconds(4))), 0.25, 0.01);
  EXPECT_EQ(meter.busy_share(At(seconds(7))), 0.0) << "it came to rest";
}

TEST(LoadMeterTest, AStepLongerThanTheWholeWindowIsABusyEngine) {
  LoadMeter meter(At({}));
  meter.NoteStep(At({}), At(seconds(60)));
  EXPECT_NEAR(meter.busy_share(At(seconds(60))), 1.0, 1e-9);
  EXPECT_NEAR(meter.busy_share(At(seconds(62))), 0.5, 0.21);
}

}  // namespace
}  // namespace renga
