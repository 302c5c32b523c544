#include "app/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/device.h"

namespace renga {
namespace {

using ::testing::HasSubstr;

TEST(DeviceChoice, NamesAreParsed) {
  EXPECT_EQ(ParseDeviceName("auto")->kind, DeviceKind::kAuto);
  EXPECT_EQ(ParseDeviceName("cpu")->kind, DeviceKind::kCpu);
  EXPECT_EQ(ParseDeviceName("cuda")->kind, DeviceKind::kCuda);
  EXPECT_EQ(ParseDeviceName("cuda")->index, 0);
  EXPECT_EQ(ParseDeviceName("cuda:12")->index, 12);
}

TEST(DeviceChoice, OtherNamesAreRefused) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda0",
                           "cuda: 1", "cuda:99999999999", "CPU"}) {
    EXPECT_EQ(ParseDeviceName(name).status().field(), "device.name") << name;
  }
}

StatusOr<std::unique_ptr<Backend>> Make(const char* name, const Status& device) {
  return MakeBackend({.name = name, .threads = 1},
                     [&](int32_t) { return StatusOr<std::unique_ptr<Device>>(device); });
}

TEST(DeviceChoice, AutoIsTheCpuWhereThereIsNoGpu) {
  const auto backend = Make("auto", Unavailable("no CUDA driver"));
  ASSERT_EQ(backend.status().ToString(), "OK");
  EXPECT_THAT((*backend)->info().name, HasSubstr("cpu/"));
}

TEST(DeviceChoice, AutoIsTheCpuWhereTheGpuIsTooOld) {
  for (const Status& why : {Unimplemented("compute capability 7.5"),
                            FailedPrecondition("a driver of version 11.8")}) {
    const auto backend = Make("auto", why);
    ASSERT_EQ(backend.status().ToString(), "OK");
    EXPECT_THAT((*backend)->info().name, HasSubstr("cpu/"));
  }
  EXPECT_EQ(Make("cuda:0", Unimplemented("compute capability 7.5")).status().code(),
            StatusCode::kUnimplemented);
}

TEST(DeviceChoice, AutoDoesNotHideABrokenGpu) {
  const auto backend = Make("auto", Internal("the driver is out of its mind"));
  EXPECT_EQ(backend.status().code(), StatusCode::kInternal);
  EXPECT_EQ(backend.status().field(), "device.name");
}

TEST(DeviceChoice, AGpuThatWasAskedForIsRequired) {
  const auto backend = Make("cuda:1", Unavailable("no CUDA driver"));
  EXPECT_EQ(backend.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(backend.status().field(), "device.name");
  EXPECT_THAT(backend.status().message(), HasSubstr("cuda:1: no CUDA driver"));
}

TEST(DeviceChoice, TheCpuAsksForNoDevice) {
  const auto backend = MakeBackend({.name = "cpu", .threads = 1}, [](int32_t) {
    ADD_FAILURE() << "a device was asked for";
    return StatusOr<std::unique_ptr<Device>>(Internal("no"));
  });
  EXPECT_EQ(backend.status().ToString(), "OK");
}

}  // namespace
}  // namespace renga
