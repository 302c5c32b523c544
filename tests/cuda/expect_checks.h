// What the gtest programs of this folder share beside the checks themselves.

#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/cuda/device_case.h"
#include "tests/simt/simt_family.h"

namespace renga::test {

// One family for SimtDevice.
inline std::vector<EmulatedKernel> KernelsOf(const EmulatedKernels& family) {
  return {family.first, family.first + family.count};
}

inline void ExpectAllOk(const CheckResults& results) {
  EXPECT_FALSE(results.empty());
  for (const CheckResult& result : results) {
    EXPECT_TRUE(result.ok) << result.name << ": " << result.error << " of "
                           << result.bound << ' ' << result.detail;
  }
}

}  // namespace renga::test
