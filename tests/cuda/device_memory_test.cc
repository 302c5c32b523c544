#include "backend/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "tests/simt/simt_device.h"

namespace renga {
namespace {

using test::SimtDevice;
using ::testing::HasSubstr;

int64_t UsedBytes(SimtDevice& device, int64_t total) {
  return total - device.FreeBytes().value();
}

class DeviceMemoryTest : public ::testing::Test {
 protected:
  static constexpr int64_t kTotal = 1 << 20;
  SimtDevice device_{{}, {.total_bytes = kTotal}};
};

TEST_F(DeviceMemoryTest, GivesItselfBack) {
  {
    auto a = DeviceMemory::Allocate(device_, 5000, MemoryPurpose::kOther, "a test");
    ASSERT_TRUE(a.ok());
    DeviceMemory moved = *std::move(a);
    EXPECT_NE(moved.As<char>(), nullptr);
    EXPECT_GE(UsedBytes(device_, kTotal), 5000);
    moved = DeviceMemory();
  }
  EXPECT_EQ(UsedBytes(device_, kTotal), 0);
}

TEST_F(DeviceMemoryTest, MissingMemorySaysForWhatAndHowMuch) {
  const auto all =
      DeviceMemory::Allocate(device_, kTotal + 4096, MemoryPurpose::kKvPool, "a KV pool");
  EXPECT_EQ(all.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(all.status().message(), HasSubstr("a KV pool of 1052672 bytes"));
  EXPECT_THAT(all.status().message(), HasSubstr("1048576 are free, 4096 are missing"));
}

TEST_F(DeviceMemoryTest, AnArenaCutsBlocksAndGivesThemBack) {
  {
    DeviceArena arena(device_, MemoryPurpose::kWeights, 4096);
    std::set<char*> places;
    for (int i = 0; i < 20; ++i) {
      const auto at = arena.Allocate(300, "a test");
      ASSERT_TRUE(at.ok());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(*at) % 256, 0u);
      places.insert(static_cast<char*>(*at));
    }
    EXPECT_EQ(places.size(), 20u);
    for (auto next = places.begin(), at = next++; next != places.end(); at = next++) {
      EXPECT_GE(*next - *at, 300);
    }
    EXPECT_EQ(UsedBytes(device_, kTotal), 3 * 4096);     // 8 places of 512 in each.
    ASSERT_TRUE(arena.Allocate(100000, "a test").ok());  // A block of its own.
    ASSERT_TRUE(arena.Allocate(300, "a test").ok());     // Still from the third one.
    EXPECT_LT(UsedBytes(device_, kTotal), 3 * 4096 + 101000);
  }
  EXPECT_EQ(UsedBytes(device_, kTotal), 0);
}

TEST_F(DeviceMemoryTest, AnArenaWithoutBlocksAsksForEachAllocation) {
  DeviceArena arena(device_, MemoryPurpose::kWeights, 0);
  ASSERT_TRUE(arena.Allocate(1000, "a test").ok());
  ASSERT_TRUE(arena.Allocate(1000, "a test").ok());
  EXPECT_LT(UsedBytes(device_, kTotal), 4096);
}

TEST_F(DeviceMemoryTest, AnArenaThatFailsOnceMayGoOn) {
  DeviceArena arena(device_, MemoryPurpose::kWeights, 4096);
  EXPECT_FALSE(arena.Allocate(2 * kTotal, "a test").ok());
  EXPECT_TRUE(arena.Allocate(300, "a test").ok());
}

TEST_F(DeviceMemoryTest, PinnedMemoryGivesItselfBack) {
  auto pinned = PinnedMemory::Allocate(device_, 100);
  ASSERT_TRUE(pinned.ok());
  pinned->As<char>()[99] = 1;
}

}  // namespace
}  // namespace renga
