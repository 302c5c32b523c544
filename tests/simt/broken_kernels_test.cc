// Every mistake of broken_*_kernels.cc is reported with its text at its place, and the
// same kernel without it runs clean, in any order of blocks, warps and lanes.

#include "tests/simt/broken_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "tests/simt/simt.h"

namespace renga::test {

void PrintTo(const SimtReport& report, std::ostream* out) { *out << report.ToString(); }
void PrintTo(const BrokenKernel& kernel, std::ostream* out) {
  *out << kernel.broken.name;
}

namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

// "broken_shared_kernels.cc:123": the line with the mark in the kernel's body.
std::string MarkedPlace(const BrokenKernel& kernel) {
  const std::string path = kernel.file;
  const std::string file = path.substr(path.rfind('/') + 1);
  std::ifstream source(RENGA_TEST_DATA "/simt/" + file);
  bool inside = false;
  std::string line;
  for (int number = 1; std::getline(source, line); ++number) {
    inside =
        inside || line.rfind(std::string("void ") + kernel.broken.name + "(", 0) == 0;
    if (inside && line.find("// FOUND") != std::string::npos) {
      return file + ":" + std::to_string(number);
    }
  }
  return "";
}

std::vector<BrokenKernel> All() {
  std::vector<BrokenKernel> all;
  for (const BrokenKernels& some :
       {BrokenDivergenceKernels(), BrokenSharedKernels(), BrokenGlobalKernels()}) {
    all.insert(all.end(), some.first, some.first + some.count);
  }
  return all;
}

SimtRun RunOne(const EmulatedKernel& kernel, uint32_t seed) {
  constexpr int64_t kBytes = kBrokenWords * int64_t{sizeof(uint32_t)};
  SimtMemory memory;
  const std::vector<uint32_t> ones(kBrokenWords, 1);
  uint32_t* in = static_cast<uint32_t*>(memory.Allocate(kBytes, "in"));
  uint32_t* more = static_cast<uint32_t*>(memory.Allocate(kBytes, "more"));
  uint32_t* out = static_cast<uint32_t*>(memory.Allocate(kBytes, "out"));
  memory.Write(in, ones.data(), kBytes);
  memory.Write(more, ones.data(), kBytes);
  const ProbeArgs args{in, more, out, 3};
  const SimtOptions options{.seed = seed, .most_steps = 20000, .most_accesses = 20000};
  return RunKernel(kernel, {2, 1, 1, 64, 4096}, &args, memory, options);
}

class Broken : public ::testing::TestWithParam<BrokenKernel> {
 protected:
  const BrokenKernel& kernel() const { return GetParam(); }
};

TEST_P(Broken, IsReportedAtItsPlace) {
  if (kernel().hooks && !kSimtHooks) GTEST_SKIP() << "seen through hooks alone";
  const SimtRun run = RunOne(kernel().broken, 0);
  EXPECT_THAT(run.reports,
              Contains(AllOf(Field(&SimtReport::what, kernel().what),
                             Field(&SimtReport::where, MarkedPlace(kernel())),
                             Field(&SimtReport::detail, HasSubstr(kernel().detail)))))
      << run.ToString();
}

TEST_P(Broken, IsReportedInAnyOrder) {
  if (kernel().hooks && !kSimtHooks) GTEST_SKIP() << "seen through hooks alone";
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    EXPECT_FALSE(RunOne(kernel().broken, seed).ok()) << "seed " << seed;
  }
}

TEST_P(Broken, IsCleanWithoutTheMistake) {
  for (uint32_t seed = 0; seed <= 5; ++seed) {
    const SimtRun run = RunOne(kernel().right, seed);
    EXPECT_TRUE(run.ok()) << "seed " << seed << "\n" << run.ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Broken, ::testing::ValuesIn(All()),
                         [](const ::testing::TestParamInfo<BrokenKernel>& test) {
                           return std::string(test.param.broken.name);
                         });

}  // namespace
}  // namespace renga::test
