#include "tests/simt/simt_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/block_format.h"
#include "tests/cuda/device_case.h"
#include "tests/simt/probe.h"

namespace renga::test {
namespace {

using ::testing::HasSubstr;

std::vector<EmulatedKernel> Probes() {
  const EmulatedKernels all = ProbeKernels();
  return {all.first, all.first + all.count};
}

class SimtDeviceTest : public ::testing::Test {
 protected:
  // out = in, by way of shared memory.
  Status LaunchRing(const uint32_t* in, uint32_t* out) {
    const ProbeArgs args{in, in, out, 32};
    const cuda::LaunchShape shape{1, 1, 1, 32, 1024};
    return device_.Launch({ProbeKernel("kCopyRing").id, shape}, args, stream_);
  }

  SimtDevice device_{Probes(), {.total_bytes = 1 << 20}};
  StreamId stream_ = Must(device_.CreateStream());
  const std::vector<uint32_t> words_ = std::vector<uint32_t>(128, 5);
};

TEST_F(SimtDeviceTest, RunsKernelsAtOnceAndCounts) {
  const DeviceBuffer<uint32_t> in(device_, words_, stream_);
  const DeviceBuffer<uint32_t> out(device_, 256, stream_);
  device_.Name(in.data(), "in");
  ASSERT_TRUE(LaunchRing(in.data(), out.data()).ok());
  EXPECT_EQ(out.Download(), std::vector<uint32_t>(256, 5));
  EXPECT_TRUE(out.GuardsIntact());
  EXPECT_EQ(device_.last_counters().buffers.at("in").read.distinct_sectors, 16);
  EXPECT_EQ(device_.launches(), 1);
}

TEST_F(SimtDeviceTest, AMistakeInAKernelIsItsStatus) {
  if (!kSimtHooks) GTEST_SKIP() << "seen through hooks alone";
  const DeviceBuffer<uint32_t> in(device_, 128, stream_);  // Never written.
  const DeviceBuffer<uint32_t> out(device_, 256, stream_);
  const Status status = LaunchRing(in.data(), out.data());
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("kCopyRing: probe_kernels.cc:"));
  EXPECT_THAT(status.message(), HasSubstr("read of uninitialised global memory"));
  ASSERT_EQ(device_.reports().size(), 1u);
  EXPECT_EQ(device_.reports()[0].kernel, "kCopyRing");
}

TEST_F(SimtDeviceTest, WrongLaunchesAreRefused) {
  const ProbeArgs args;
  const cuda::KernelId ring = ProbeKernel("kCopyRing").id;
  EXPECT_THAT(device_.Launch({cuda::KernelId{1}, {}}, args, stream_).message(),
              HasSubstr("no kernel 1"));
  EXPECT_THAT(device_.Launch({ring, {1, 1, 1, 64, 0}}, args, stream_).message(),
              HasSubstr("compiled for 32"));
  EXPECT_THAT(device_.Launch({ring, {1, 1, 1, 32, 0}}, int32_t{1}, stream_).message(),
              HasSubstr("not 4"));
  EXPECT_EQ(device_.Launch({ring, {}}, args, StreamId{7}).field(), "stream");
}

TEST_F(SimtDeviceTest, MemoryIsLimitedAndBooked) {
  const int64_t before = MemoryLedger::Process().Read(MemoryPurpose::kKvPool).bytes;
  void* memory = Must(device_.Allocate(1 << 19, MemoryPurpose::kKvPool));
  EXPECT_EQ(MemoryLedger::Process().Read(MemoryPurpose::kKvPool).bytes,
            before + (1 << 19));
  EXPECT_EQ(Must(device_.FreeBytes()), 1 << 19);
  const Status status = device_.Allocate((1 << 19) + 1, MemoryPurpose::kKvPool).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("524289"));
  EXPECT_THAT(status.message(), HasSubstr("524288 free"));
  device_.Free(memory);
  EXPECT_EQ(Must(device_.FreeBytes()), 1 << 20);
  EXPECT_EQ(MemoryLedger::Process().Read(MemoryPurpose::kKvPool).bytes, before);
}

TEST_F(SimtDeviceTest, CopiesStayInsideBuffers) {
  DeviceBuffer<uint32_t> buffer(device_, words_, stream_);
  std::vector<uint32_t> host(300);
  EXPECT_FALSE(device_.CopyToDevice(buffer.data(), host.data(), 1200, stream_).ok());
  EXPECT_FALSE(device_.CopyToHost(host.data(), buffer.data(), 1200, stream_).ok());
  EXPECT_FALSE(device_.CopyOnDevice(host.data(), buffer.data(), 4, stream_).ok());
  EXPECT_FALSE(device_.Fill(host.data(), 0, 4, stream_).ok());
  DeviceBuffer<uint32_t> other(device_, 128, stream_);
  ASSERT_TRUE(device_.CopyOnDevice(other.data(), buffer.data(), 512, stream_).ok());
  EXPECT_EQ(other.Download(), words_);
}

TEST_F(SimtDeviceTest, FillsWithOnesPoisonUnlessTheyAreMeant) {
  void* memory = Must(device_.Allocate(64, MemoryPurpose::kOther));
  ASSERT_TRUE(device_.Fill(memory, 0xff, 64, stream_).ok());
  EXPECT_FALSE(device_.FullyWritten(memory, 64));
  ASSERT_TRUE(device_.Fill(memory, 0, 64, stream_).ok());
  EXPECT_TRUE(device_.FullyWritten(memory, 64));
  SimtDevice other(Probes(), {.fill_poisons = false});
  const StreamId stream = Must(other.CreateStream());
  memory = Must(other.Allocate(64, MemoryPurpose::kOther));
  ASSERT_TRUE(other.Fill(memory, 0xff, 64, stream).ok());
  EXPECT_TRUE(other.FullyWritten(memory, 64));
}

TEST_F(SimtDeviceTest, AGraphIsReplayedWithWhatIsInMemoryThen) {
  DeviceBuffer<uint32_t> in(device_, words_, stream_);
  DeviceBuffer<uint32_t> out(device_, 256, stream_);
  ASSERT_TRUE(device_.BeginCapture(stream_).ok());
  ASSERT_TRUE(LaunchRing(in.data(), out.data()).ok());
  ASSERT_TRUE(LaunchRing(in.data(), out.data()).ok());
  EXPECT_EQ(device_.launches(), 0);
  const GraphId graph = Must(device_.EndCapture(stream_));
  in.Upload(std::vector<uint32_t>(128, 9));
  ASSERT_TRUE(device_.Replay(graph, stream_).ok());
  EXPECT_EQ(device_.launches(), 2);
  EXPECT_EQ(out.Download(), std::vector<uint32_t>(256, 9));
  ASSERT_TRUE(device_.Replay(graph, stream_).ok());
  EXPECT_EQ(device_.last_counters().global.read.sectors, 2 * 32);
  device_.DestroyGraph(graph);
  EXPECT_FALSE(device_.Replay(graph, stream_).ok());
}

TEST_F(SimtDeviceTest, WhileCapturingOnlyCapturedStreamsWork) {
  const StreamId other = Must(device_.CreateStream());
  const EventId event = Must(device_.CreateEvent());
  DeviceBuffer<uint32_t> buffer(device_, words_, stream_);
  ASSERT_TRUE(device_.BeginCapture(stream_).ok());
  EXPECT_FALSE(device_.BeginCapture(stream_).ok());
  EXPECT_FALSE(device_.Synchronize(stream_).ok());
  EXPECT_FALSE(device_.SynchronizeEvent(event).ok());
  EXPECT_FALSE(device_.Allocate(4, MemoryPurpose::kOther).ok());
  EXPECT_FALSE(device_.AllocatePinned(4).ok());
  EXPECT_FALSE(device_.Fill(buffer.data(), 0, 4, other).ok());
  EXPECT_FALSE(device_.EndCapture(other).ok());
  ASSERT_TRUE(device_.Record(event, stream_).ok());
  ASSERT_TRUE(device_.Wait(other, event).ok());
  EXPECT_TRUE(device_.Fill(buffer.data(), 0, 4, other).ok());
  const GraphId graph = Must(device_.EndCapture(stream_));
  EXPECT_EQ(buffer.Download()[0], 5u);
  ASSERT_TRUE(device_.Replay(graph, stream_).ok());
  EXPECT_EQ(buffer.Download()[0], 0u);
}

TEST_F(SimtDeviceTest, GemmMultipliesAndAdds) {
  // x [2][3] stride 4, weights [2][3] stride 3.
  const auto half = [](float value) { return F32ToF16(value); };
  std::vector<uint16_t> x_values;
  for (const float v : {1.0f, 2.0f, 3.0f, 0.0f, 4.0f, 5.0f, 6.0f, 0.0f}) {
    x_values.push_back(half(v));
  }
  std::vector<uint16_t> w_values;
  for (const float v : {1.0f, 0.0f, -1.0f, 2.0f, 0.5f, 0.0f}) w_values.push_back(half(v));
  const DeviceBuffer<uint16_t> x(device_, x_values, stream_);
  const DeviceBuffer<uint16_t> weights(device_, w_values, stream_);
  const DeviceBuffer<float> out(device_, 6, stream_);
  GemmShape shape{.weights = weights.data(),
                  .x = x.data(),
                  .out = out.data(),
                  .weights_stride = 3,
                  .x_stride = 4,
                  .out_stride = 3,
                  .rows = 2,
                  .outputs = 2,
                  .cols = 3};
  ASSERT_TRUE(device_.Gemm(shape, stream_).ok());
  EXPECT_FALSE(device_.FullyWritten(out.data() + 2, 4));
  shape.add = true;
  ASSERT_TRUE(device_.Gemm(shape, stream_).ok());
  const std::vector<float> got = out.Download();
  EXPECT_EQ(std::vector<float>(got.begin(), got.begin() + 2),
            (std::vector<float>{-4, 6}));
  EXPECT_EQ(std::vector<float>(got.begin() + 3, got.begin() + 5),
            (std::vector<float>{-4, 21}));
  shape.rows = 40;
  EXPECT_THAT(device_.Gemm(shape, stream_).message(), HasSubstr("[x, row "));
}

TEST_F(SimtDeviceTest, PinnedMemoryIsTheHosts) {
  uint32_t* pinned = static_cast<uint32_t*>(Must(device_.AllocatePinned(512)));
  const DeviceBuffer<uint32_t> in(device_, words_, stream_);
  ASSERT_TRUE(device_.CopyToHost(pinned, in.data(), 512, stream_).ok());
  EXPECT_EQ(pinned[127], 5u);
  const DeviceBuffer<uint32_t> out(device_, 256, stream_);
  EXPECT_THAT(LaunchRing(pinned, out.data()).message(), HasSubstr("wild access"));
  device_.FreePinned(pinned);
}

}  // namespace
}  // namespace renga::test
