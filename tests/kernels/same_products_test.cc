// The check at the start that compares two op tables.

#include "kernels/cpu/same_products.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_cases.h"

namespace renga {
namespace {

TEST(SameProducts, HoldsForAllTablesOfThisMachine) {
  for (const CpuOps* ops : MachineOps()) {
    EXPECT_TRUE(SameProducts(*ops, *FindCpuOps("portable"))) << ops->name;
  }
}

// Multiplies, then changes the last bit of one output.
template <void (*CpuOps::*kProduct)(const MatmulArgs&)>
void AlmostMultiply(const MatmulArgs& args) {
  (FindCpuOps("portable")->*kProduct)(args);
  float& last = args.out[(args.rows - 1) * args.out_stride + args.outputs - 1];
  last = std::nextafter(last, 1e30f);
}

TEST(SameProducts, SeesOneWrongBitOfAnyType) {
  const CpuOps& right = *FindCpuOps("portable");
  CpuOps wrong = right;
  wrong.matmul_q4_1 = AlmostMultiply<&CpuOps::matmul_q4_1>;
  EXPECT_FALSE(SameProducts(wrong, right));
  wrong = right;
  wrong.matmul_q4_k = AlmostMultiply<&CpuOps::matmul_q4_k>;
  EXPECT_FALSE(SameProducts(wrong, right));
  wrong = right;
  wrong.matmul_q8_0 = AlmostMultiply<&CpuOps::matmul_q8_0>;
  EXPECT_FALSE(SameProducts(wrong, right));
}

}  // namespace
}  // namespace renga
