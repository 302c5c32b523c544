#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <random>
#include <string>

namespace renga {
namespace {

using testing::ElementsAre;

std::vector<std::string> Pieces(SplitKind kind, std::string_view text) {
  std::vector<std::string_view> pieces;
  SplitText(kind, text, pieces);
  return {pieces.begin(), pieces.end()};
}

// The expressions of the models' own tokenizer files.
const char* Expression(SplitKind kind) {
  switch (kind) {
    case SplitKind::kLlama3:
      return "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
             "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    case SplitKind::kQwen2:
      return "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
             "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    default:
      return "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
             "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
             "|\\s+";
  }
}

class Regex {
 public:
  explicit Regex(const char* expression) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    data_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Regex() {
    pcre2_match_data_free(data_);
    pcre2_code_free(code_);
  }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  std::vector<std::string> Matches(const std::string& text) const {
    std::vector<std::string> matches;
    for (size_t at = 0; at < text.size();) {
      const int count = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                    text.size(), at, 0, data_, nullptr);
      if (count < 0) break;
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_);
      matches.push_back(text.substr(range[0], range[1] - range[0]));
      at = range[1];
    }
    return matches;
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_data* data_ = nullptr;
};

// SmolLM's: every number character alone, the GPT-2 expression between them.
std::vector<std::string> SmolLmByExpression(const std::string& text) {
  const Regex parts("\\p{N}|\\P{N}+");
  const Regex gpt2(Expression(SplitKind::kGpt2));
  std::vector<std::string> pieces;
  for (const std::string& part : parts.Matches(text)) {
    for (std::string& piece : gpt2.Matches(part)) pieces.push_back(std::move(piece));
  }
  return pieces;
}

class RandomTextTest : public testing::TestWithParam<SplitKind> {};

TEST_P(RandomTextTest, TheScanCutsAsTheExpressionDoes) {
  // Not U+180E: PCRE2 alone calls it a space, as Perl does.
  const std::vector<std::string> alphabet = {
      "a",      "S",      "s",      "t",      "r",      "e",      "l",      "'",
      " ",      " ",      "\n",     "\r",     "\t",     "1",      "9",      "-",
      "!",      "\u00e9", "\u0301", "\u0915", "\u093f", "\u0662", "\u00bd", "\u2167",
      "\u65e5", "\u3000", "\u00a0", "\u0085", "\u200b", "\u200d", "\ufeff", "\U0001F600",
      "\u017f", "\u01c5", "\u02b0", "_",      "v",      "D",      "\x1c",   "\x7f"};
  const SplitKind kind = GetParam();
  const Regex regex(Expression(kind));
  std::mt19937 rng(20240608);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (size_t n = rng() % 14; n > 0; --n) text += alphabet[rng() % alphabet.size()];
    const std::vector<std::string> expected =
        kind == SplitKind::kSmolLm ? SmolLmByExpression(text) : regex.Matches(text);
    ASSERT_EQ(Pieces(kind, text), expected) << testing::PrintToString(text);
  }
}

INSTANTIATE_TEST_SUITE_P(Splits, RandomTextTest,
                         testing::Values(SplitKind::kGpt2, SplitKind::kSmolLm,
                                         SplitKind::kLlama3, SplitKind::kQwen2));

TEST(PreTokenizerTest, TheSplitsDifferWhereTheirModelsDo) {
  EXPECT_THAT(Pieces(SplitKind::kGpt2, "a 1234"), ElementsAre("a", " 1234"));
  EXPECT_THAT(Pieces(SplitKind::kSmolLm, "a 1234"),
              ElementsAre("a", " ", "1", "2", "3", "4"));
  EXPECT_THAT(Pieces(SplitKind::kLlama3, "a 1234"), ElementsAre("a", " ", "123", "4"));
  EXPECT_THAT(Pieces(SplitKind::kQwen2, "a 12"), ElementsAre("a", " ", "1", "2"));
  EXPECT_THAT(Pieces(SplitKind::kGpt2, "I'LL"), ElementsAre("I", "'", "LL"));
  EXPECT_THAT(Pieces(SplitKind::kLlama3, "I'LL"), ElementsAre("I", "'LL"));
}

TEST(PreTokenizerTest, NamesOfTheFileFormat) {
  EXPECT_EQ(SplitKindFromGgufName("smollm"), SplitKind::kSmolLm);
  EXPECT_EQ(SplitKindFromGgufName("llama-bpe"), SplitKind::kLlama3);
  EXPECT_EQ(SplitKindFromGgufName("qwen2"), SplitKind::kQwen2);
  EXPECT_EQ(SplitKindFromGgufName("gpt-2"), SplitKind::kGpt2);
  EXPECT_EQ(SplitKindFromGgufName("deepseek-llm"), std::nullopt);
  EXPECT_EQ(SplitKindFromGgufName(""), std::nullopt);
}

}  // namespace
}  // namespace renga
