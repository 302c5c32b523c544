// Counters and ranges of a launch on patterns that can be counted by hand.

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/simt/probe.h"

namespace renga::test {
namespace {

std::vector<uint32_t> Words(size_t n) { return std::vector<uint32_t>(n, 1); }

BufferTraffic ReadWithStride(int32_t stride) {
  Probe probe{.kernel = "kStridedRead", .in = Words(1024), .out = Words(32), .n = stride};
  const SimtRun run = probe.Run();
  EXPECT_TRUE(run.ok()) << run.ToString();
  EXPECT_EQ(run.counters.buffers.at("out").written.sectors, 4);
  return run.counters.buffers.at("in");
}

TEST(Counters, GlobalReadsCountTheSectorsOfAWarp) {
  if (!kSimtHooks) GTEST_SKIP() << "plain reads";
  for (const auto& [stride, sectors] :
       {std::pair{0, 1}, {1, 4}, {2, 8}, {8, 32}, {9, 32}}) {
    const BufferTraffic traffic = ReadWithStride(stride);
    EXPECT_EQ(traffic.read.requests, 1) << stride;
    EXPECT_EQ(traffic.read.sectors, sectors) << stride;
    EXPECT_EQ(traffic.read.distinct_sectors, sectors) << stride;
    EXPECT_EQ(traffic.read.bytes, 128) << stride;
    EXPECT_EQ(traffic.written.requests, 0) << stride;
  }
}

TEST(Counters, SectorsReadTwiceAreDistinctOnce) {
  Probe probe{
      .kernel = "kSum", .in = Words(1000), .out = Words(4), .n = 1000, .blocks = 4};
  const SimtRun run = probe.Run();
  ASSERT_TRUE(run.ok());
  if (!kSimtHooks) GTEST_SKIP() << "plain reads";
  const BufferTraffic& in = run.counters.buffers.at("in");
  EXPECT_EQ(in.read.distinct_sectors, 125);
  EXPECT_EQ(in.read.sectors, 4 * 125);
  EXPECT_EQ(in.read.bytes, 4 * 4000);
  // One element each of one sector.
  EXPECT_EQ(run.counters.buffers.at("out").written.sectors, 4);
  EXPECT_EQ(run.counters.global.written.distinct_sectors, 1);
  EXPECT_EQ(run.counters.global.read.distinct_sectors, 125);
}

TEST(Counters, LanesOfUnevenLoopsMeetAgain) {
  if (!kSimtHooks) GTEST_SKIP() << "plain reads";
  Probe probe{.kernel = "kUnevenReads", .in = Words(128), .out = Words(32)};
  const SimtRun run = probe.Run();
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run.counters.buffers.at("in").read.requests, 4);
  EXPECT_EQ(run.counters.buffers.at("in").read.bytes, (8 + 16 + 24 + 32) * 4);
  EXPECT_EQ(run.counters.buffers.at("out").written.requests, 1);
}

SimtCounters Shared(const char* kernel, int32_t stride) {
  Probe probe{.kernel = kernel, .n = stride};
  const SimtRun run = probe.Run();
  EXPECT_TRUE(run.ok()) << run.ToString();
  return run.counters;
}

TEST(Counters, SharedWordsOfOneBankGoOneByOne) {
  if (!kSimtHooks) GTEST_SKIP() << "plain writes";
  for (const auto& [stride, passes] :
       {std::pair{1, 1}, {2, 2}, {3, 1}, {8, 8}, {32, 32}}) {
    const SimtCounters counters = Shared("kStridedShared", stride);
    EXPECT_EQ(counters.shared_requests, 1);
    EXPECT_EQ(counters.shared_wavefronts, passes) << stride;
    EXPECT_EQ(counters.ideal_wavefronts, 1);
  }
}

TEST(Counters, LanesThatReadOneWordGoTogether) {
  if (!kSimtHooks) GTEST_SKIP() << "plain accesses";
  Probe probe{.kernel = "kSharedBroadcast", .out = Words(32), .n = 4};
  const SimtRun run = probe.Run();
  ASSERT_TRUE(run.ok()) << run.ToString();
  EXPECT_EQ(run.counters.shared_requests, 2);
  EXPECT_EQ(run.counters.WavefrontRatio(), 1.0);
}

TEST(Counters, SharedVectorsGoInFourPasses) {
  for (const auto& [stride, passes] : {std::pair{1, 4}, {2, 8}, {8, 32}, {9, 4}}) {
    const SimtCounters counters = Shared("kStridedVectors", stride);
    EXPECT_EQ(counters.shared_wavefronts, passes) << stride;
    EXPECT_EQ(counters.ideal_wavefronts, 4);
  }
}

TEST(Counters, LoadMatrixGoesInFourPassesOfEightRows) {
  // The copies before it are 16-byte writes with the same pattern.
  EXPECT_EQ(Shared("kStridedMatrix", 1).WavefrontRatio(), 1.0);
  EXPECT_EQ(Shared("kStridedMatrix", 8).WavefrontRatio(), 8.0);
  EXPECT_EQ(Shared("kStridedMatrix", 9).WavefrontRatio(), 1.0);
  EXPECT_EQ(Shared("kStridedMatrix", 1).shared_requests, 2);
}

TEST(Counters, RangesAreWhatWasReadAndWritten) {
  SimtMemory memory;
  const std::vector<uint32_t> words = Words(2048);
  uint32_t* in = static_cast<uint32_t*>(memory.Allocate(8192));
  uint32_t* out = static_cast<uint32_t*>(memory.Allocate(8192));
  memory.Write(in, words.data(), 8192);
  const ProbeArgs args{in + 3, in + 1000, out + 5, 20};
  const SimtRun run = RunKernel(ProbeKernel("kStridedRead"), {1, 1, 1, 32, 0}, &args,
                                memory, {.ranges = true});
  ASSERT_TRUE(run.ok()) << run.ToString();
  if (!kSimtHooks) GTEST_SKIP() << "plain accesses";
  ASSERT_EQ(run.reads.size(), 32u);
  EXPECT_EQ(run.reads[0].begin, reinterpret_cast<const char*>(in + 3));
  EXPECT_EQ(run.reads[31].begin, reinterpret_cast<const char*>(in + 3 + 31 * 20));
  EXPECT_EQ(run.reads[31].bytes, 4);
  ASSERT_EQ(run.writes.size(), 1u);
  EXPECT_EQ(run.writes[0].begin, reinterpret_cast<const char*>(out + 5));
  EXPECT_EQ(run.writes[0].bytes, 128);
}

TEST(Counters, RangesGoOnOverChunksOfTheShadow) {
  SimtMemory memory;
  const std::vector<uint32_t> words = Words(4096);
  uint32_t* in = static_cast<uint32_t*>(memory.Allocate(16384));
  uint32_t* out = static_cast<uint32_t*>(memory.Allocate(64));
  memory.Write(in, words.data(), 16384);
  const ProbeArgs args{in, nullptr, out, 4000};
  const SimtRun run =
      RunKernel(ProbeKernel("kSum"), {1, 1, 1, 64, 8}, &args, memory, {.ranges = true});
  ASSERT_TRUE(run.ok()) << run.ToString();
  if (!kSimtHooks) GTEST_SKIP() << "plain accesses";
  ASSERT_EQ(run.reads.size(), 1u);
  EXPECT_EQ(run.reads[0].bytes, 16000);
}

}  // namespace
}  // namespace renga::test
