// Results do not depend on company, on the real default model: the same ids and the same
// bits of every logit alone and in a batch, sliced or not, at 1 and 2 threads, after a
// preemption, on the portable kernels and on the machine's best.

#include "tests/engine/sameness.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace renga {
namespace {

std::string ModelPath() {
  if (const char* path = std::getenv("RENGA_TEST_MODEL"); path != nullptr) return path;
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : "") +
         "/.cache/renga/SmolLM2-135M-Instruct.Q4_1.gguf";
}

class SmolLm2SamenessTest : public testing::Test {
 protected:
  void SetUp() override {
    auto file = GgufFile::Open(ModelPath());
    ASSERT_TRUE(file.ok()) << "the default model is missing: scripts/test.sh fetches it ("
                           << file.status().ToString() << ")";
    file_ = std::move(*file);
    const int64_t lengths[] = {1, 20, 64, 65, 33, 130, 7};
    for (int i = 0; i < 7; ++i) {
      asked_.push_back({.prompt = PromptOf(lengths[i], i),
                        .tokens = 4 + i % 3,
                        .temperature = i % 2 == 0 ? 0.0f : 0.8f});
    }
  }

  std::unique_ptr<GgufFile> file_;
  std::vector<AskedFor> asked_;
};

TEST_F(SmolLm2SamenessTest, AnswersAndLogitsAreTheSameBitsInAnyCompany) {
  const Heard alone = Ask(*file_, asked_, {.isa = "auto", .threads = 2});
  for (const Company& company :
       {Company{.isa = "portable", .threads = 1, .batch = 7, .slice = 64},
        Company{.isa = "auto", .threads = 1, .batch = 2, .slice = 5, .rotate = 3},
        Company{.isa = "auto", .threads = 2, .batch = 7, .slice = 0, .rotate = 5}}) {
    ExpectSame(alone, Ask(*file_, asked_, company), company.Name());
  }
}

TEST_F(SmolLm2SamenessTest, SoItIsWithInt8PagesAndPrefixReuse) {
  const KvDtype dtype = KvDtype::kInt8;
  const Heard alone = Ask(*file_, asked_, {.isa = "auto", .threads = 2, .dtype = dtype});
  const Company company{.isa = "auto",
                        .threads = 1,
                        .dtype = dtype,
                        .batch = 7,
                        .slice = 50,
                        .rotate = 3,
                        .reuse = true};
  ExpectSame(alone, Ask(*file_, asked_, company), company.Name());
}

TEST_F(SmolLm2SamenessTest, APreemptedRequestIsComputedAgainWithTheSameBits) {
  asked_.resize(4);
  for (AskedFor& asked : asked_) asked.tokens = 80;
  const Heard alone = Ask(*file_, asked_, {.isa = "auto", .threads = 2});
  const Company company{.isa = "auto", .threads = 1, .batch = 4, .slice = 64, .pages = 6};
  const Heard heard = Ask(*file_, asked_, company);
  EXPECT_GT(heard.preemptions, 0) << "the pool was not small enough";
  ExpectSame(alone, heard, company.Name());
}

}  // namespace
}  // namespace renga
