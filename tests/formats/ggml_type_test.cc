#include "formats/ggml_type.h"

#include <gtest/gtest.h>

namespace renga {
namespace {

TEST(GgmlTypeTest, TheTypesWeComputeWithHaveTheirBlocks) {
  struct Expected {
    uint32_t type;
    const char* name;
    int64_t values, bytes;
  };
  for (const Expected& e :
       {Expected{kGgmlF32, "F32", 1, 4}, Expected{kGgmlF16, "F16", 1, 2},
        Expected{kGgmlQ4_1, "Q4_1", 32, 20}, Expected{kGgmlQ8_0, "Q8_0", 32, 34}}) {
    const GgmlTypeInfo* info = FindGgmlType(e.type);
    ASSERT_NE(info, nullptr);
    EXPECT_STREQ(info->name, e.name);
    EXPECT_EQ(info->block_values, e.values);
    EXPECT_EQ(info->block_bytes, e.bytes);
  }
}

TEST(GgmlTypeTest, EveryKnownTypeHasAPositiveBlockAndItsOwnName) {
  int32_t known = 0;
  for (uint32_t type = 0; type < 100; ++type) {
    const GgmlTypeInfo* info = FindGgmlType(type);
    if (info == nullptr) continue;
    ++known;
    EXPECT_GT(info->block_values, 0);
    EXPECT_GT(info->block_bytes, 0);
    EXPECT_EQ(GgmlTypeName(type), info->name);
  }
  EXPECT_EQ(known, 32);
}

TEST(GgmlTypeTest, RemovedAndFutureTypesAreUnknown) {
  for (const uint32_t type : {4u, 5u, 31u, 33u, 36u, 1000u, 0xffffffffu}) {
    EXPECT_EQ(FindGgmlType(type), nullptr) << type;
  }
  EXPECT_EQ(GgmlTypeName(77), "type 77");
}

}  // namespace
}  // namespace renga
