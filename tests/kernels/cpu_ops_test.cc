// The choice of an op table.

#include "kernels/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_cases.h"

namespace renga {
namespace {

TEST(OpTables, PortableIsAlwaysThereAndUnknownNamesAreNot) {
  EXPECT_NE(FindCpuOps("portable"), nullptr);
  EXPECT_EQ(FindCpuOps("sse9"), nullptr);
  EXPECT_EQ(FindCpuOps(""), nullptr);
  EXPECT_NE(BestCpuOps(), nullptr);
}

}  // namespace
}  // namespace renga
