// What a machine without a GPU says of it. What CudaDevice computes, only a GPU can show:
// tests/gpu.

#include "backend/cuda_device.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace renga {
namespace {

TEST(CudaDeviceTest, WithoutAGpuThereIsNone) {
  if (CudaDeviceCount() > 0) GTEST_SKIP() << "this machine has a GPU";
  for (const int32_t index : {0, 7, -1}) {
    const Status status = MakeCudaDevice(index).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    EXPECT_TRUE(status.message() == "this build has no CUDA" ||
                status.message() == "no CUDA driver" ||
                status.message() == "no CUDA device")
        << status.message();
  }
}

TEST(CudaDeviceTest, AnIndexThatDoesNotExistNamesTheSetting) {
  const int32_t count = CudaDeviceCount();
  if (count == 0) GTEST_SKIP() << "this machine has no GPU";
  for (const int32_t index : {-1, count, std::numeric_limits<int32_t>::max()}) {
    const Status status = MakeCudaDevice(index).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_EQ(status.field(), "device.name");
    EXPECT_NE(status.message().find(std::to_string(count)), std::string::npos);
  }
}

}  // namespace
}  // namespace renga
