#include "app/speed_probe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu_backend.h"

namespace renga {
namespace {

constexpr Duration kShort = std::chrono::milliseconds(1);

TEST(SpeedProbeTest, EveryNumberOfThreadsReadsSomething) {
  for (const int32_t threads : {1, 2, 3}) {
    const double speed = MeasureReadBandwidth(threads, 8 << 20, kShort);
    EXPECT_GT(speed, 0.0);
    EXPECT_TRUE(std::isfinite(speed));
  }
}

TEST(SpeedProbeTest, WithoutMemoryThereIsNoSpeed) {
  EXPECT_EQ(MeasureReadBandwidth(1, 0, kShort), 0.0);
  EXPECT_EQ(MeasureReadBandwidth(4, 16, kShort), 0.0);
}

TEST(SpeedProbeTest, TheMadeUpLayerRunsOnTheDevice) {
  const auto backend = MakeCpuBackend({.threads = 2, .precision = "fast"});
  ASSERT_TRUE(backend.ok());
  const MadeUpLayer layer;
  const auto speed = MeasureProducts(**backend, layer.views(), kShort);
  ASSERT_TRUE(speed.ok()) << speed.status().ToString();
  EXPECT_GT(*speed, 0.0);
}

TEST(SpeedProbeTest, ADeviceThatIsInUseIsAnErrorNotACrash) {
  const auto backend = MakeCpuBackend({.threads = 1});
  ASSERT_TRUE(backend.ok());
  const MadeUpLayer layer;
  ASSERT_TRUE(MeasureProducts(**backend, layer.views(), kShort).ok());
  EXPECT_FALSE(MeasureProducts(**backend, layer.views(), kShort).ok());
}

}  // namespace
}  // namespace renga
