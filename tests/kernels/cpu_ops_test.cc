// The choice of an op table.

#include "kernels/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/kernels/kernel_cases.h"

namespace renga {
namespace {

TEST(OpTables, PortableIsAlwaysThereAndUnknownNamesAreNot) {
  EXPECT_NE(FindCpuOps("portable"), nullptr);
  EXPECT_EQ(FindCpuOps("sse9"), nullptr);
  EXPECT_EQ(FindCpuOps(""), nullptr);
  EXPECT_NE(BestCpuOps(), nullptr);
}

TEST(OpTables, ATableSaysTheNameItIsFoundBy) {
  for (const char* name : kCpuOpsName) {
    const CpuOps* ops = FindCpuOps(name);
    if (ops != nullptr) {
      EXPECT_STREQ(ops->name, name);
    }
  }
}

// Linux lists what the CPU has and what it saves itself.
TEST(OpTables, AmxIsOfferedWhereLinuxHasIt) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  const auto has = [&text](const std::string& flag) {
    return text.find(" " + flag) != std::string::npos;
  };
  const bool has_amx =
      has("amx_tile") && has("amx_int8") && FindCpuOps("avx512") != nullptr;
  EXPECT_EQ(FindCpuOps("amx") != nullptr, has_amx);
}

}  // namespace
}  // namespace renga
