#include "metrics/device_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "metrics/server_metrics.h"

namespace renga {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(DeviceMetricsTest, WithoutAGpuThereIsNoSeries) {
  const ServerMetrics metrics("tiny", "cpu/avx2");
  EXPECT_THAT(metrics.Serialize(), Not(HasSubstr("renga_gpu_")));
}

TEST(DeviceMetricsTest, EachFigureIsAGaugeOfItsGpu) {
  ServerMetrics metrics("tiny", "cuda:1/NVIDIA A10G");
  metrics.SetGpu({.gpu = "1",
                  .utilization = 0.87,
                  .memory_used_bytes = 6'000,
                  .memory_total_bytes = 24'000,
                  .power_watts = 151.5,
                  .temperature_celsius = 61.0});
  const std::string text = metrics.Serialize();
  const std::string of_gpu = "{model=\"tiny\",gpu=\"1\"} ";
  EXPECT_THAT(text, HasSubstr("renga_gpu_utilization_ratio" + of_gpu + "0.87\n"));
  EXPECT_THAT(text, HasSubstr("renga_gpu_memory_used_bytes" + of_gpu + "6000\n"));
  EXPECT_THAT(text, HasSubstr("renga_gpu_memory_total_bytes" + of_gpu + "24000\n"));
  EXPECT_THAT(text, HasSubstr("renga_gpu_power_watts" + of_gpu + "151.5\n"));
  EXPECT_THAT(text, HasSubstr("renga_gpu_temperature_celsius" + of_gpu + "61\n"));
}

TEST(DeviceMetricsTest, AFigureThatIsNotToldHasNoSeriesAndOneThatStaysAwayIsNaN) {
  ServerMetrics metrics("tiny", "cuda:0/NVIDIA A10G");
  metrics.SetGpu({.gpu = "0", .memory_total_bytes = 24'000, .power_watts = 150.0});
  EXPECT_THAT(metrics.Serialize(), Not(HasSubstr("renga_gpu_temperature_celsius")));
  metrics.SetGpu({.gpu = "0", .memory_total_bytes = 24'000});
  const std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr("renga_gpu_power_watts{model=\"tiny\",gpu=\"0\"} Nan\n"));
  EXPECT_THAT(
      text, HasSubstr("renga_gpu_memory_total_bytes{model=\"tiny\",gpu=\"0\"} 24000\n"));
}

}  // namespace
}  // namespace renga
