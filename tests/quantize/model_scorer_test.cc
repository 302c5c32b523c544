// Logits of one sequence, slice by slice.

#include "quantize/model_scorer.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/models/temporary_folder.h"
#include "tests/quantize/scorer_support.h"

namespace renga {
namespace {

std::vector<TokenId> Tokens(int32_t count) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(10 + i * 7 % 200);
  return tokens;
}

std::vector<float> Row(ModelScorer& scorer, int32_t index) {
  const auto row = scorer.Logits(index);
  EXPECT_TRUE(row.ok()) << row.status().ToString();
  return {row->begin(), row->end()};
}

TEST(ModelScorer, SlicesDoNotChangeTheLogits) {
  const test::TemporaryFolder folder;
  const auto scorer = test::OpenScorer({}, folder / "tiny.gguf", 512);
  const std::vector<TokenId> tokens = Tokens(100);
  const std::span<const TokenId> all = tokens;
  ASSERT_TRUE(scorer->Compute(all, 0, 90).ok());
  const std::vector<float> whole = Row(*scorer, 9);
  ASSERT_EQ(whole.size(), 300u);
  ASSERT_TRUE(scorer->Compute(all.first(70), 0, 70).ok()) << "no logits are wanted";
  ASSERT_TRUE(scorer->Compute(all.subspan(70), 70, 0).ok());
  EXPECT_EQ(Row(*scorer, 29), whole);
}

TEST(ModelScorer, TheWindowIsAtMostTheModelsContext) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(test::OpenScorer({.context = 100}, folder / "a.gguf", 512)->window(), 100);
  EXPECT_EQ(test::OpenScorer({}, folder / "b.gguf", 512)->window(), 512);
}

TEST(ModelScorer, LogitsThatAreNoNumbersAreAnError) {
  const test::TemporaryFolder folder;
  test::GgufWriter writer = test::TinyModelWriter({});
  std::vector<std::byte> data(64 * 4);
  data[2] = std::byte{0xc0};
  data[3] = std::byte{0x7f};  // A NaN.
  writer.RemoveTensor("output_norm.weight");
  writer.AddTensor("output_norm.weight", 0, {64}, data);
  ASSERT_TRUE(test::WriteFile(folder / "nan.gguf", writer.Finish()));
  auto scorer = ModelScorer::Open(folder / "nan.gguf", *MakeCpuBackend({.threads = 1}),
                                  KvDtype::kF16, 64);
  ASSERT_TRUE(scorer.ok()) << scorer.status().ToString();
  ASSERT_TRUE((*scorer)->Compute(Tokens(3), 0, 0).ok());
  EXPECT_EQ((*scorer)->Logits(0).status().code(), StatusCode::kDataLoss);
}

TEST(ModelScorer, FilesThatAreNoModelsAreRefused) {
  const auto open = [](const std::string& path) {
    return ModelScorer::Open(path, *MakeCpuBackend({.threads = 1}), KvDtype::kF16, 64)
        .status();
  };
  EXPECT_EQ(open("/nonexistent/x.gguf").code(), StatusCode::kNotFound);
  EXPECT_FALSE(open("/dev/null").ok());
}

}  // namespace
}  // namespace renga
