// Results do not depend on company: on tiny models of every tensor type, ids and logits
// are the same bits alone and in any batch, slicing, thread count, instruction set, and
// after a preemption.

#include "tests/engine/sameness.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "tests/models/tiny_model.h"

namespace renga {
namespace {

using test::TinyType;

class SamenessTest : public testing::TestWithParam<std::tuple<TinyType, KvDtype>> {
 protected:
  void SetUp() override {
    const auto [type, dtype] = GetParam();
    dtype_ = dtype;
    path_ = testing::TempDir() + "renga_sameness_" + test::TinyTypeName(type) + "_" +
            std::string(KvDtypeName(dtype)) + "_" + std::to_string(getpid()) + ".gguf";
    ASSERT_TRUE(test::WriteTinyModel({.type = type}, path_));
    auto file = GgufFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    file_ = std::move(*file);
    for (int i = 0; i < 32; ++i) {
      // Ragged, and at the borders of a page and of a tree group.
      const int64_t lengths[] = {1, 64, 65, 17, 9, 5, 128, 33};
      const int64_t tokens = i == 6 ? 257 : lengths[i % 8] + i % 3;
      asked_.push_back({.prompt = PromptOf(tokens, i),
                        .tokens = 3 + i % 4,
                        .temperature = i % 2 == 0 ? 0.0f : 0.8f});
    }
  }
  void TearDown() override { std::remove(path_.c_str()); }

  Company With(Company company) const {
    company.dtype = dtype_;
    return company;
  }

  KvDtype dtype_{};
  std::string path_;
  std::unique_ptr<GgufFile> file_;
  std::vector<AskedFor> asked_;
};

TEST_P(SamenessTest, AnswersAndLogitsAreTheSameBitsInAnyCompany) {
  const Heard alone = Ask(*file_, asked_, With({}));
  const int32_t batches[] = {1, 2, 7, 32}, slices[] = {1, 5, 64, 0};
  const size_t parity = dtype_ == KvDtype::kF32 ? 0 : 1;
  for (size_t b = 0; b < 4; ++b) {
    for (size_t s = 0; s < 4; ++s) {
      if ((b + s) % 2 != parity) continue;  // Another dtype tries the other half.
      const Company company = With({.isa = (b / 2 + s / 2) % 2 == 0 ? "auto" : "portable",
                                    .threads = 1 + static_cast<int32_t>(s / 2),
                                    .batch = batches[b],
                                    .slice = slices[s],
                                    .rotate = 5 * b + 3 * s});
      ExpectSame(alone, Ask(*file_, asked_, company), company.Name());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(SamenessTest, APreemptedRequestIsComputedAgainWithTheSameBits) {
  asked_.resize(7);
  for (AskedFor& asked : asked_) asked.tokens += 140;  // More than the headroom.
  const Heard alone = Ask(*file_, asked_, With({}));
  for (const char* isa : {"portable", "auto"}) {
    const Company company =
        With({.isa = isa, .threads = 2, .batch = 7, .slice = 64, .pages = 9});
    const Heard heard = Ask(*file_, asked_, company);
    EXPECT_GT(heard.preemptions, 0) << "the pool was not small enough";
    ExpectSame(alone, heard, company.Name());
  }
}

TEST_P(SamenessTest, ASeedIsObeyedWhateverTheNeighboursDraw) {
  const AskedFor seeded{.prompt = PromptOf(20, 1), .tokens = 32, .temperature = 0.8f};
  const Heard alone = Ask(*file_, {seeded}, With({}));
  for (int neighbours = 1; neighbours <= 7; ++neighbours) {
    std::vector<AskedFor> asked{seeded};
    for (int i = 0; i < neighbours; ++i) {
      asked.push_back({.prompt = PromptOf(20 + (i % 2) * i, 1 + i % 3),
                       .tokens = 10 + 5 * i,
                       .temperature = 0.5f * static_cast<float>(i)});
    }
    const Company company = With({.isa = "auto",
                                  .threads = 2,
                                  .batch = 8,
                                  .rotate = static_cast<size_t>(neighbours)});
    EXPECT_EQ(Ask(*file_, asked, company).ids(0), alone.ids(0)) << neighbours;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, SamenessTest,
    testing::Combine(testing::Values(TinyType::kF32, TinyType::kF16, TinyType::kQ4_1,
                                     TinyType::kQ8_0),
                     testing::Values(KvDtype::kF32, KvDtype::kF16, KvDtype::kInt8)),
    [](const auto& tested) {
      return test::TinyTypeName(std::get<0>(tested.param)) + "_" +
             std::string(KvDtypeName(std::get<1>(tested.param)));
    });

}  // namespace
}  // namespace renga
