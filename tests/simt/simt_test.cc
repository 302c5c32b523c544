// The emulator's operations against what they are defined to be, and the limits of a
// launch.

#include "tests/simt/simt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/simt/probe.h"

namespace renga::test {
namespace {

using ::testing::HasSubstr;

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

std::vector<uint32_t> Counting(size_t n, uint32_t first = 0) {
  std::vector<uint32_t> values(n);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(Simt, ShufflesAndBallotsGiveWhatTheyAreDefinedToGive) {
  Probe probe{.kernel = "kShuffles", .out = std::vector<uint32_t>(256)};
  const SimtRun run = probe.Run();
  ASSERT_TRUE(run.ok()) << run.ToString();
  const auto value = [](int lane) { return Bits(static_cast<float>(lane) + 0.5f); };
  for (int lane = 0; lane < 32; ++lane) {
    const uint32_t* got = &probe.out[static_cast<size_t>(lane)];
    EXPECT_EQ(got[0], value(lane ^ 5));
    EXPECT_EQ(got[32], static_cast<uint32_t>(-(lane ^ 16)));
    EXPECT_EQ(got[64], static_cast<uint32_t>(31 - lane));
    EXPECT_EQ(got[96], value(7));
    EXPECT_EQ(got[128], static_cast<uint32_t>(-((lane + 3) % 32)));
    EXPECT_EQ(got[160], value(lane < 4 ? lane : lane - 4));
    EXPECT_EQ(got[192], static_cast<uint32_t>(lane == 0 ? 0 : lane - 1));
    EXPECT_EQ(got[224], 0x49249249u);
  }
}

TEST(Simt, CopyAsyncFillsWithZerosAndDoesNotReadThen) {
  Probe probe{.kernel = "kCopyRing",
              .in = Counting(128, 1),
              .more = Counting(128, 1000),
              .out = std::vector<uint32_t>(256, 7),
              .n = 20};
  const SimtRun run = probe.Run();
  ASSERT_TRUE(run.ok()) << run.ToString();
  for (size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(probe.out[i], i < 80 ? 1 + i : 0);
    EXPECT_EQ(probe.out[128 + i], i < 80 ? 1000 + i : 0);
  }
}

TEST(Simt, AtomicsOfAllBlocksAddUp) {
  Probe probe{.kernel = "kAtomics",
              .in = Counting(192, 1),
              .out = std::vector<uint32_t>(4),
              .blocks = 3};
  const SimtRun run = probe.Run();
  ASSERT_TRUE(run.ok()) << run.ToString();
  EXPECT_EQ(probe.out, (std::vector<uint32_t>{18528, 192, 0, 18528}));
}

TEST(Simt, BlocksOfThreeDimensionsHaveTheirPlaces) {
  SimtMemory memory;
  uint32_t* out = static_cast<uint32_t*>(memory.Allocate(30 * 4));
  const ProbeArgs args{nullptr, nullptr, out, 0};
  const SimtRun run = RunKernel(ProbeKernel("kPlaces"), {5, 3, 2, 32, 0}, &args, memory);
  ASSERT_TRUE(run.ok()) << run.ToString();
  EXPECT_EQ(std::vector<uint32_t>(out, out + 30), Counting(30));
}

TEST(Simt, EveryOrderGivesTheSameBits) {
  std::vector<uint32_t> in;
  for (int i = 0; i < 1000; ++i) in.push_back(Bits(1.0f / static_cast<float>(i + 1)));
  Probe first{.kernel = "kSum", .in = in, .out = {0, 0, 0}, .n = 1000, .blocks = 3};
  ASSERT_TRUE(first.Run().ok());
  for (uint32_t seed = 1; seed < 20; ++seed) {
    Probe probe = first;
    probe.options.seed = seed;
    ASSERT_TRUE(probe.Run().ok());
    EXPECT_EQ(probe.out, first.out) << "seed " << seed;
  }
}

TEST(Simt, SingleBytesOfSharedMemoryNeedSmallerGranules) {
  Probe probe{.kernel = "kSingleBytes", .out = std::vector<uint32_t>(32)};
  EXPECT_EQ(probe.Run().ok(), !kSimtHooks);
  probe.options.single_bytes = true;
  const SimtRun run = probe.Run();
  EXPECT_TRUE(run.ok()) << run.ToString();
  EXPECT_EQ(probe.out[0], 31u);
}

TEST(Simt, WithoutChecksAndCountersNothingIsWatched) {
  Probe probe{.kernel = "kCopyRing",
              .in = Counting(128, 1),
              .more = Counting(128, 1000),
              .out = std::vector<uint32_t>(256, 7),
              .n = 32,
              .options = {.checks = false, .counters = false}};
  const SimtRun run = probe.Run();
  EXPECT_TRUE(run.ok());
  EXPECT_EQ(probe.out[5], 6u);
  EXPECT_EQ(run.counters.global.read.requests, 0);
}

TEST(Simt, LimitsOfALaunchAreReported) {
  const EmulatedKernel kernel{.name = "kSum", .threads = 64};
  const auto wrong = [&kernel](cuda::LaunchShape shape) {
    return ValidateLaunch(kernel, shape);
  };
  EXPECT_EQ(wrong({1, 1, 1, 64, 99 * 1024}), "");
  EXPECT_THAT(wrong({0, 1, 1, 64, 0}), HasSubstr("grid"));
  EXPECT_THAT(wrong({1, 65536, 1, 64, 0}), HasSubstr("grid"));
  EXPECT_THAT(wrong({1, 1, 65536, 64, 0}), HasSubstr("grid"));
  EXPECT_THAT(wrong({1, 1, 1, 63, 0}), HasSubstr("not whole warps"));
  EXPECT_THAT(wrong({1, 1, 1, 2048, 0}), HasSubstr("more than 1024"));
  EXPECT_THAT(wrong({1, 1, 1, 128, 0}), HasSubstr("compiled for 64"));
  EXPECT_THAT(wrong({1, 1, 1, 64, 99 * 1024 + 1}), HasSubstr("shared memory"));
  SimtMemory memory;
  EXPECT_THAT(RunKernel(kernel, {1, 1, 1, 128, 0}, nullptr, memory).ToString(),
              HasSubstr("launch: 128 threads"));
}

TEST(Simt, ARunAfterAFatalOneIsClean) {
  Probe probe{
      .kernel = "kLoadMatrices", .in = Counting(124), .out = std::vector<uint32_t>(256)};
  EXPECT_THAT(probe.Run().ToString(),
              HasSubstr("out of bounds [read of 'in' at 496 of 496]"));
  probe.in = Counting(128);
  EXPECT_TRUE(probe.Run().ok());
}

}  // namespace
}  // namespace renga::test
