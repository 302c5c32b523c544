#include "backend/weight_uploader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/simt/lazy_device.h"

namespace renga {
namespace {

using test::LazyDevice;
using ::testing::IsEmpty;

// Sends `pieces` pieces of `bytes` bytes, each of its own value; returns what arrived.
std::vector<uint8_t> Sent(LazyDevice& device, int pieces, int64_t bytes) {
  void* to = device.Allocate(pieces * bytes, MemoryPurpose::kWeights).value();
  {
    WeightUploader uploader = WeightUploader::Make(device, 1024).value();
    for (int i = 0; i < pieces; ++i) {
      uint8_t* buffer = uploader.Buffer(bytes).value();
      device.NoteHostWrite(buffer, bytes);
      std::memset(buffer, i + 1, static_cast<size_t>(bytes));
      EXPECT_TRUE(uploader.Send(static_cast<char*>(to) + i * bytes, bytes).ok());
    }
    EXPECT_TRUE(uploader.Finish().ok());
  }
  std::vector<uint8_t> got(static_cast<size_t>(pieces * bytes));
  const StreamId stream = device.CreateStream().value();
  EXPECT_TRUE(device.CopyToHost(got.data(), to, pieces * bytes, stream).ok());
  EXPECT_TRUE(device.Synchronize(stream).ok());
  device.Free(to);
  return got;
}

TEST(WeightUploader, EveryPieceArrivesWhateverOrderTheDeviceTakes) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    for (const int64_t bytes : {100, 1024, 5000}) {  // Also more than a buffer.
      LazyDevice device({}, {.seed = seed});
      const std::vector<uint8_t> got = Sent(device, 7, bytes);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], i / static_cast<size_t>(bytes) + 1) << seed << " " << i;
      }
      EXPECT_THAT(device.reports(), IsEmpty());
      EXPECT_THAT(device.Leaks(), IsEmpty());
    }
  }
}

TEST(WeightUploader, ABufferThatCannotBeHadFailsAndTheNextTryMayGoOn) {
  LazyDevice device({}, {.seed = 1});
  WeightUploader uploader = WeightUploader::Make(device, 1024).value();
  device.FailAt(test::DeviceCall::kAllocatePinned, 1, ResourceExhausted("no more"));
  EXPECT_EQ(uploader.Buffer(100).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(uploader.Buffer(100).ok());
}

}  // namespace
}  // namespace renga
