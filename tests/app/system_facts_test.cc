#include "app/system_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace renga {
namespace {

using testing::ElementsAre;

// A tree of files in place of /proc and /sys.
class SystemFactsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "renga_system_facts_test_" + std::to_string(getpid());
    std::filesystem::remove_all(root_);
    Put("/proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nflags\t\t: fpu avx2 fma "
        "avx512f amx_tile avx512_vnni avx2x\n\nprocessor\t: 1\nmodel name\t: Other\n");
    Put("/proc/meminfo",
        "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:   8000000 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  SystemFacts Read() { return ReadSystemFacts(root_); }

  std::string root_;
};

TEST_F(SystemFactsTest, ReadsTheCpuAndItsFlags) {
  const SystemFacts facts = Read();
  EXPECT_EQ(facts.cpu, "Some CPU @ 3 GHz");
  EXPECT_THAT(facts.flags,
              ElementsAre("avx2", "fma", "avx512f", "avx512_vnni", "amx_tile"));
  EXPECT_GE(facts.cores, facts.allowed_cores);
  EXPECT_GE(facts.allowed_cores, 1);
}

TEST_F(SystemFactsTest, WithoutControlGroupsTheMachinesMemoryCounts) {
  const SystemFacts facts = Read();
  EXPECT_EQ(facts.memory_bytes, int64_t{16'000'000} * 1024);
  EXPECT_EQ(facts.limit_bytes, 0);
  EXPECT_EQ(facts.quota_cores, 0.0);
  EXPECT_EQ(UsableBytes(facts), int64_t{8'000'000} * 1024);
}

TEST_F(SystemFactsTest, HugePagesAreTheWordInBrackets) {
  Put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  EXPECT_EQ(Read().huge_pages, "madvise");
  Put("/sys/kernel/mm/transparent_hugepage/enabled", "garbage");
  EXPECT_EQ(Read().huge_pages, "");
}

TEST_F(SystemFactsTest, TheLoadIsThatOfTheLastMinute) {
  EXPECT_EQ(Read().load, 0.0);
  Put("/proc/loadavg", "1.25 0.58 0.59 1/467 12345\n");
  EXPECT_DOUBLE_EQ(Read().load, 1.25);
}

TEST_F(SystemFactsTest, OfVersion2TheLeastLimitOnTheWayUpCounts) {
  Put("/proc/self/cgroup", "0::/pod/container\n");
  Put("/sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  Put("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  Put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  Put("/sys/fs/cgroup/pod/container/memory.max", "1000000\n");
  Put("/sys/fs/cgroup/pod/container/memory.current", "400000\n");
  Put("/sys/fs/cgroup/pod/memory.max", "2000000\n");
  const SystemFacts facts = Read();
  EXPECT_DOUBLE_EQ(facts.quota_cores, 1.5);
  EXPECT_EQ(facts.limit_bytes, 1'000'000);
  EXPECT_EQ(UsableBytes(facts), 600'000);
}

TEST_F(SystemFactsTest, InAContainerTheOwnGroupStandsAtTheTop) {
  Put("/proc/self/cgroup", "0::/host/path/that/is/not/here\n");
  Put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  Put("/sys/fs/cgroup/memory.max", "max\n");
  const SystemFacts facts = Read();
  EXPECT_DOUBLE_EQ(facts.quota_cores, 0.5);
  EXPECT_EQ(facts.limit_bytes, 0);
  EXPECT_EQ(UsableCores(facts), 1);
}

TEST_F(SystemFactsTest, OfVersion1EachControllerHasItsOwnTree) {
  Put("/proc/self/cgroup", "5:cpuacct,cpu:/job\n4:memory:/job\n3:cpuset:/job\n");
  Put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n");
  Put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3000000\n");
  Put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4000000\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const SystemFacts facts = Read();
  EXPECT_DOUBLE_EQ(facts.quota_cores, 2.0);
  EXPECT_EQ(facts.limit_bytes, 3'000'000);
  EXPECT_EQ(UsableBytes(facts), 0);
}

TEST_F(SystemFactsTest, WhereNothingCanBeReadNothingIsClaimed) {
  std::filesystem::remove_all(root_);
  const SystemFacts facts = Read();
  EXPECT_EQ(facts.cpu, "");
  EXPECT_EQ(facts.memory_bytes, 0);
  EXPECT_EQ(UsableBytes(facts), 0);
  EXPECT_GE(UsableCores(facts), 1);
}

TEST(UsableCoresTest, IsTheLeastOfAffinityAndQuota) {
  EXPECT_EQ(UsableCores({.cores = 8, .allowed_cores = 4}), 4);
  EXPECT_EQ(UsableCores({.cores = 8, .allowed_cores = 4, .quota_cores = 2.9}), 2);
  EXPECT_EQ(UsableCores({.cores = 8, .allowed_cores = 4, .quota_cores = 6.0}), 4);
  EXPECT_EQ(UsableCores({.cores = 8, .allowed_cores = 4, .quota_cores = 0.1}), 1);
}

}  // namespace
}  // namespace renga
