// Texts through tiny models.

#include "quantize/text_quality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "formats/ggml_type.h"
#include "tests/models/temporary_folder.h"
#include "tests/quantize/scorer_support.h"

namespace renga {
namespace {

class TextQualityTest : public testing::Test {
 protected:
  test::TemporaryFolder folder_;
};

std::string Text(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "some words, 12 of them; ";
  return text.substr(0, bytes);
}

TEST_F(TextQualityTest, AModelAgreesWithItself) {
  const auto a = test::OpenScorer({}, folder_ / "a.gguf", 160);
  const auto b = test::OpenScorer({}, folder_ / "b.gguf", 160);
  const auto quality = MeasureText(*a, b.get(), Text(600), 2, nullptr);
  ASSERT_TRUE(quality.ok()) << quality.status().ToString();
  EXPECT_NEAR(quality->totals.mean_kl(), 0.0, 1e-12);
  EXPECT_EQ(quality->totals.same_top_share(), 1.0);
  EXPECT_EQ(quality->totals.perplexity(), quality->totals.reference_perplexity());
  EXPECT_GT(quality->totals.perplexity(), 10.0);
}

TEST_F(TextQualityTest, AnotherModelIsFarAway) {
  const auto a = test::OpenScorer({.seed = 1}, folder_ / "a.gguf", 160);
  const auto b = test::OpenScorer({.seed = 2}, folder_ / "b.gguf", 160);
  const auto quality = MeasureText(*a, b.get(), Text(600), 1, nullptr);
  ASSERT_TRUE(quality.ok()) << quality.status().ToString();
  EXPECT_GT(quality->totals.mean_kl(), 1.0);
  EXPECT_GT(quality->totals.kl_standard_error(), 0.0);
  EXPECT_GE(quality->totals.largest_kl(), quality->totals.mean_kl());
}

// Every position but the first 32 of a window and its last one.
TEST_F(TextQualityTest, WindowsScoreAllThatHasSomethingBeforeAndBehind) {
  const auto model = test::OpenScorer({}, folder_ / "a.gguf", 160);
  const std::string text = Text(600);
  const auto tokens = model->tokenizer().Encode({.text = text, .trusted = {}});
  const auto count = static_cast<int64_t>(tokens->size());
  const auto quality = MeasureText(*model, nullptr, text, 1, nullptr);
  ASSERT_TRUE(quality.ok()) << quality.status().ToString();
  int64_t expected = 0;
  for (int64_t left = count; left > 0; left -= 160) {
    expected += std::max<int64_t>(0, std::min<int64_t>(left, 160) - 1 - 32);
  }
  EXPECT_EQ(quality->totals.positions(), expected);
  EXPECT_EQ(quality->tokens, count);
  EXPECT_EQ(quality->window, 160);
  EXPECT_FALSE(quality->compared);
}

// The scores by hand, one slice for the whole window.
TEST_F(TextQualityTest, TheScoresAreThoseOfTheNextToken) {
  const auto model = test::OpenScorer({}, folder_ / "a.gguf", 100);
  const std::string text = Text(150);
  const std::vector<TokenId> tokens =
      *model->tokenizer().Encode({.text = text, .trusted = {}});
  ASSERT_LE(tokens.size(), 100u);
  const auto quality = MeasureText(*model, nullptr, text, 1, nullptr);
  ASSERT_TRUE(quality.ok()) << quality.status().ToString();
  QualityTotals totals;
  ASSERT_TRUE(model->Compute(tokens, 0, 0).ok());
  for (size_t i = 32; i + 1 < tokens.size(); ++i) {
    const auto row = model->Logits(static_cast<int32_t>(i));
    totals.Add(ScorePosition(*row, tokens[i + 1]));
  }
  EXPECT_EQ(quality->totals.perplexity(), totals.perplexity());
}

// The blocks through the engine's products against the same values as floats.
TEST_F(TextQualityTest, QuantisedWeightsAreComputedAsTheValuesTheyStandFor) {
  ASSERT_TRUE(
      test::WriteTinyModel({.dim = 256, .heads = 16, .ffn = 512}, folder_ / "in.gguf"));
  const auto convert = [this](const char* from, const char* to, uint32_t type) {
    return QuantiseFile(folder_ / from, folder_ / to,
                        {.types = {.matrix = type, .embedding = type}, .replace = true},
                        nullptr)
        .status();
  };
  const auto open = [this](const char* name) {
    return *ModelScorer::Open(folder_ / name, *MakeCpuBackend({.threads = 1}),
                              KvDtype::kF16, 160);
  };
  for (const uint32_t type : {kGgmlQ8_0, kGgmlQ4_0, kGgmlQ4_1, kGgmlQ4K}) {
    ASSERT_TRUE(convert("in.gguf", "small.gguf", type).ok());
    ASSERT_TRUE(convert("small.gguf", "floats.gguf", kGgmlF32).ok());
    const auto quality = MeasureText(*open("small.gguf"), open("floats.gguf").get(),
                                     Text(300), 1, nullptr);
    ASSERT_TRUE(quality.ok()) << quality.status().ToString();
    EXPECT_LT(quality->totals.mean_kl(), 1e-5) << GgmlTypeName(type);
    const auto lost =
        MeasureText(*open("small.gguf"), open("in.gguf").get(), Text(300), 1, nullptr);
    EXPECT_GT(lost->totals.mean_kl(), 1e-4) << "or the test compares nothing";
  }
}

TEST_F(TextQualityTest, TextsThatAreTooShortAreRefused) {
  const auto model = test::OpenScorer({}, folder_ / "a.gguf", 160);
  const Status status = MeasureText(*model, nullptr, "short", 1, nullptr).status();
  EXPECT_EQ(status.field(), "text");
  EXPECT_FALSE(MeasureText(*model, nullptr, "", 1, nullptr).ok());
  EXPECT_FALSE(MeasureText(*model, nullptr, "\xff", 1, nullptr).ok()) << "not UTF-8";
  const auto narrow = test::OpenScorer({.context = 20}, folder_ / "b.gguf", 160);
  EXPECT_EQ(MeasureText(*narrow, nullptr, Text(600), 1, nullptr).status().field(),
            "context_length");
}

TEST_F(TextQualityTest, OtherVocabulariesAreRefused) {
  const auto a = test::OpenScorer({}, folder_ / "a.gguf", 160);
  const auto b = test::OpenScorer({.vocab = 320}, folder_ / "b.gguf", 160);
  const Status status = MeasureText(*a, b.get(), Text(600), 1, nullptr).status();
  EXPECT_EQ(status.field(), "reference");
}

TEST_F(TextQualityTest, ProgressEndsAtAllTokensAndCanStop) {
  const auto model = test::OpenScorer({}, folder_ / "a.gguf", 100);
  int64_t last = 0;
  const auto quality =
      MeasureText(*model, nullptr, Text(600), 1, [&](int64_t done, int64_t total) {
        EXPECT_GT(done, last);
        EXPECT_LE(done, total);
        last = done;
        return true;
      });
  ASSERT_TRUE(quality.ok());
  EXPECT_EQ(last, quality->tokens);
  const auto stop = [](int64_t, int64_t) { return false; };
  EXPECT_EQ(MeasureText(*model, nullptr, Text(600), 1, stop).status().code(),
            StatusCode::kCancelled);
}

TEST(SampleText, IsLongEnoughToSaySomething) {
  EXPECT_GT(SampleText().size(), 8000u);
  EXPECT_TRUE(SampleText().starts_with("The lighthouse keeper's daughter\n"));
  EXPECT_TRUE(SampleText().ends_with("from the other side.\n"));
}

}  // namespace
}  // namespace renga
