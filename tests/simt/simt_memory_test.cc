#include "tests/simt/simt_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/simt/probe.h"

namespace renga::test {
namespace {

TEST(SimtMemory, BuffersAreAlignedPoisonedAndApart) {
  SimtMemory memory;
  char* a = static_cast<char*>(memory.Allocate(100, "a"));
  char* b = static_cast<char*>(memory.Allocate(0, "b"));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
  EXPECT_EQ(a[99], '\xff');
  EXPECT_TRUE(memory.Holds(a, 100));
  EXPECT_FALSE(memory.Holds(a, 101));
  EXPECT_FALSE(memory.Holds(a - 1, 1));
  EXPECT_TRUE(memory.Holds(b, 0));
  EXPECT_FALSE(memory.Holds(b, 1));
  EXPECT_EQ(memory.Find(a + 100 + 255)->name, "a");
  EXPECT_EQ(memory.Find(a - 256)->name, "a");
  EXPECT_EQ(memory.Find(&memory), nullptr);
  memory.Name(a + 50, "c");
  EXPECT_EQ(memory.Find(a)->name, "c");
  memory.Free(a);
  EXPECT_FALSE(memory.Holds(a, 1));
}

TEST(SimtMemory, KnowsWhatWasWritten) {
  SimtMemory memory;
  char* a = static_cast<char*>(memory.Allocate(64));
  char* b = static_cast<char*>(memory.Allocate(64));
  memory.Fill(a, 0, 32);
  EXPECT_TRUE(memory.FullyWritten(a, 32));
  EXPECT_FALSE(memory.FullyWritten(a, 34));
  memory.Copy(b, a, 64);
  EXPECT_TRUE(memory.FullyWritten(b, 32));
  EXPECT_FALSE(memory.FullyWritten(b + 32, 2));
  memory.Poison(b, 16);
  EXPECT_FALSE(memory.FullyWritten(b, 2));
  EXPECT_EQ(b[15], '\xff');
  EXPECT_EQ(b[16], 0);
  memory.MarkWritten(b, 64);
  EXPECT_TRUE(memory.FullyWritten(b, 64));
}

TEST(SimtMemory, ACopyOverItselfMovesWhatWasWritten) {
  SimtMemory memory;
  char* a = static_cast<char*>(memory.Allocate(64));
  memory.Write(a, "abcdefgh", 8);
  memory.Copy(a + 2, a, 8);
  EXPECT_EQ(std::memcmp(a, "ababcdefgh", 10), 0);
  EXPECT_TRUE(memory.FullyWritten(a, 10));
  EXPECT_FALSE(memory.FullyWritten(a, 12));
}

// Stamps are numbers of 31 bits: when they are used up, they begin again.
TEST(SimtMemory, ForgetsLaunchesWhenStampsRunOut) {
  SimtMemory memory;
  std::vector<uint32_t> words(256, 1);
  uint32_t* in = static_cast<uint32_t*>(memory.Allocate(1024, "in"));
  uint32_t* out = static_cast<uint32_t*>(memory.Allocate(1024, "out"));
  memory.Write(in, words.data(), 1024);
  const ProbeArgs args{in, in, out, 32};
  const EmulatedKernel& kernel = ProbeKernel("kCopyRing");
  for (int round = 0; round < 4; ++round) {
    const SimtRun run = RunKernel(kernel, {1, 1, 1, 32, 1024}, &args, memory);
    ASSERT_TRUE(run.ok()) << run.ToString();
    EXPECT_EQ(run.counters.buffers.at("out").written.distinct_sectors, 32);
    memory.BeginLaunch(int64_t{1} << 30);
  }
  EXPECT_TRUE(memory.FullyWritten(out, 1024));
}

TEST(SimtMemory, PoisonedInputIsReported) {
  if (!kSimtHooks) GTEST_SKIP() << "seen through hooks alone";
  SimtMemory memory;
  std::vector<uint32_t> words(256, 1);
  uint32_t* in = static_cast<uint32_t*>(memory.Allocate(1024, "in"));
  uint32_t* out = static_cast<uint32_t*>(memory.Allocate(1024, "out"));
  memory.Write(in, words.data(), 1024);
  memory.Poison(in + 100, 4);
  const ProbeArgs args{in, in, out, 32};
  const SimtRun run =
      RunKernel(ProbeKernel("kCopyRing"), {1, 1, 1, 32, 1024}, &args, memory);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.reports[0].what, "read of uninitialised global memory");
  EXPECT_EQ(run.reports[0].thread, 25);
  EXPECT_EQ(run.reports[0].times, 4);  // Two loads, two halves of the word.
}

}  // namespace
}  // namespace renga::test
