#include "backend/nvml.h"

#include <gtest/gtest.h>

#include <memory>

namespace renga {
namespace {

constexpr const char* kWhole = "0000:65:00.0";
constexpr const char* kSlice = "0000:66:00.0";

TEST(NvmlTest, ReadsWhatTheGpuTells) {
  const std::unique_ptr<Nvml> nvml = Nvml::Open(3, kWhole, RENGA_FAKE_NVML);
  ASSERT_NE(nvml, nullptr);
  const GpuFigures figures = nvml->Read();
  EXPECT_EQ(figures.gpu, "3");
  EXPECT_DOUBLE_EQ(figures.utilization.value(), 0.87);
  EXPECT_EQ(figures.memory_used_bytes.value(), 6'000'000'000);
  EXPECT_EQ(figures.memory_total_bytes.value(), 24'000'000'000);
  EXPECT_DOUBLE_EQ(figures.power_watts.value(), 151.5);
  EXPECT_DOUBLE_EQ(figures.temperature_celsius.value(), 61.0);
}

TEST(NvmlTest, AFigureThatTheGpuDoesNotTellIsEmpty) {
  const std::unique_ptr<Nvml> nvml = Nvml::Open(0, kSlice, RENGA_FAKE_NVML);
  ASSERT_NE(nvml, nullptr);
  const GpuFigures figures = nvml->Read();
  EXPECT_EQ(figures.memory_total_bytes.value(), 10'000'000'000);
  EXPECT_FALSE(figures.utilization.has_value());
  EXPECT_FALSE(figures.power_watts.has_value());
  EXPECT_FALSE(figures.temperature_celsius.has_value());
}

TEST(NvmlTest, WhereTheLibraryIsMissingThereIsNothing) {
  EXPECT_EQ(Nvml::Open(0, kWhole, "/nonexistent/libnvidia-ml.so.1"), nullptr);
}

TEST(NvmlTest, ALibraryWithoutTheFunctionsIsNone) {
  EXPECT_EQ(Nvml::Open(0, kWhole, "libm.so.6"), nullptr);
}

// The fake refuses a second start before a shutdown.
TEST(NvmlTest, TheLibraryIsShutDownAlsoWhereTheGpuIsUnknown) {
  EXPECT_EQ(Nvml::Open(0, "0000:99:00.0", RENGA_FAKE_NVML), nullptr);
  EXPECT_NE(Nvml::Open(0, kWhole, RENGA_FAKE_NVML), nullptr);
  const std::unique_ptr<Nvml> nvml = Nvml::Open(0, kWhole, RENGA_FAKE_NVML);
  ASSERT_NE(nvml, nullptr);
  EXPECT_EQ(Nvml::Open(0, kWhole, RENGA_FAKE_NVML), nullptr);
}

}  // namespace
}  // namespace renga
