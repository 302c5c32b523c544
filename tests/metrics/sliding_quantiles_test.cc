#include "metrics/sliding_quantiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace renga {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint At(double s) {
  return TimePoint(duration_cast<Duration>(std::chrono::duration<double>(s)));
}
Duration Seconds(double s) {
  return duration_cast<Duration>(std::chrono::duration<double>(s));
}

double Quantile(SlidingQuantiles& sliding, double at, double q) {
  std::array<double, 1> value{};
  sliding.Quantiles(At(at), std::array{q}, value);
  return value[0];
}

TEST(SlidingQuantilesTest, NothingObservedIsZero) {
  SlidingQuantiles sliding;
  EXPECT_EQ(Quantile(sliding, 1000.0, 0.99), 0.0);
}

TEST(SlidingQuantilesTest, EveryQuantileIsWithinHalfABinOfTheExactOne) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> latency(-4.0, 1.5);
  for (const size_t count : {1U, 2U, 10U, 1000U, 20'000U}) {
    SlidingQuantiles sliding;
    std::vector<double> exact;
    for (size_t i = 0; i < count; ++i) {
      exact.push_back(std::clamp(latency(random), 2e-5, 500.0));
      sliding.Observe(Seconds(exact.back()),
                      At(100.0 + 50.0 * static_cast<double>(i) / 20'000.0));
    }
    std::sort(exact.begin(), exact.end());
    for (const double q : {0.001, 0.25, 0.5, 0.9, 0.95, 0.99, 1.0}) {
      const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(count)));
      const double want = exact[std::max<size_t>(rank, 1) - 1];
      EXPECT_NEAR(Quantile(sliding, 150.0, q) / want, 1.0, 0.0251)
          << "q " << q << " of " << count;
    }
  }
}

TEST(SlidingQuantilesTest, WhatIsOlderThanAMinuteDoesNotCount) {
  SlidingQuantiles sliding;
  for (int i = 0; i < 100; ++i) sliding.Observe(seconds(1), At(1000.0));
  sliding.Observe(milliseconds(10), At(1030.0));
  EXPECT_NEAR(Quantile(sliding, 1030.0, 0.5), 1.0, 0.03);
  EXPECT_NEAR(Quantile(sliding, 1054.9, 0.5), 1.0, 0.03);
  EXPECT_NEAR(Quantile(sliding, 1060.1, 0.5), 0.01, 0.0003);
  EXPECT_EQ(Quantile(sliding, 1091.0, 0.5), 0.0);
}

TEST(SlidingQuantilesTest, ALongSilenceLeavesNothingBehind) {
  SlidingQuantiles sliding;
  for (int s = 0; s < 60; ++s) sliding.Observe(seconds(9), At(s));
  // The same places of the ring, an hour later.
  sliding.Observe(milliseconds(1), At(3600.0));
  EXPECT_NEAR(Quantile(sliding, 3601.0, 1.0), 0.001, 0.00003);
}

TEST(SlidingQuantilesTest, TimesMayComeALittleOutOfOrder) {
  SlidingQuantiles sliding;
  sliding.Observe(seconds(1), At(105.0));
  sliding.Observe(seconds(3), At(104.9));  // The slice before.
  EXPECT_NEAR(Quantile(sliding, 104.8, 1.0), 3.0, 0.08);
  // Its place has been given to another slice: dropped, not counted as new.
  sliding.Observe(seconds(1), At(165.0));
  sliding.Observe(seconds(9), At(105.0));
  EXPECT_NEAR(Quantile(sliding, 165.0, 0.5), 1.0, 0.03);
  EXPECT_NEAR(Quantile(sliding, 165.0, 1.0), 1.0, 0.03);
}

TEST(SlidingQuantilesTest, AbsurdValuesAreCountedInTheOutermostBins) {
  SlidingQuantiles sliding;
  sliding.Observe(seconds(-5), At(1.0));
  EXPECT_LE(Quantile(sliding, 1.0, 1.0), 1.1e-5);
  sliding.Observe(std::chrono::hours(1000), At(1.0));
  EXPECT_NEAR(Quantile(sliding, 1.0, 1.0), 600.0, 30.0);
  sliding.Observe(Duration::max(), At(-1.0));
  EXPECT_NEAR(Quantile(sliding, 1.0, 1.0), 600.0, 30.0);
}

}  // namespace
}  // namespace renga
