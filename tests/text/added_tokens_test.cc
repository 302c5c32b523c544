#include "text/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace renga {
namespace {

AddedTokens Tokens(const std::vector<AddedToken>& tokens) {
  AddedTokens added;
  for (const AddedToken& token : tokens) added.Add(token);
  return added;
}

// "id[begin,end) ..."
std::string Found(const AddedTokens& tokens, const std::string& text,
                  bool trusted = true) {
  std::vector<ByteRange> ranges;
  if (trusted) ranges.push_back({0, text.size()});
  std::string found;
  for (const AddedTokens::Match& match : tokens.Find(text, ranges)) {
    found += std::to_string(match.id) + "[" + std::to_string(match.begin) + "," +
             std::to_string(match.end) + ") ";
  }
  return found;
}

TEST(AddedTokensTest, TheLongestMatchWinsAndMatchesDoNotOverlap) {
  const AddedTokens tokens = Tokens({{.id = 1, .content = "ab"},
                                     {.id = 2, .content = "abc"},
                                     {.id = 3, .content = "bcd"},
                                     {.id = 4, .content = "c"}});
  EXPECT_EQ(Found(tokens, "abcd"), "2[0,3) ");
  EXPECT_EQ(Found(tokens, "xabab"), "1[1,3) 1[3,5) ");
  EXPECT_EQ(Found(tokens, "bcdc"), "3[0,3) 4[3,4) ");
  EXPECT_EQ(Found(tokens, ""), "");
}

TEST(AddedTokensTest, AnUntrustedControlTokenGivesWayToAShorterPlainOne) {
  const AddedTokens tokens = Tokens(
      {{.id = 1, .content = "<a>"}, {.id = 2, .content = "<a>b", .control = true}});
  EXPECT_EQ(Found(tokens, "<a>b", true), "2[0,4) ");
  EXPECT_EQ(Found(tokens, "<a>b", false), "1[0,3) ");
}

TEST(AddedTokensTest, BlanksGoToTheTokenThatTakesThem) {
  const AddedTokens tokens = Tokens({{.id = 1, .content = "L", .lstrip = true},
                                     {.id = 2, .content = "R", .rstrip = true}});
  EXPECT_EQ(Found(tokens, "a \u3000L b"), "1[1,6) ");
  EXPECT_EQ(Found(tokens, "R \n x"), "2[0,4) ");
  EXPECT_EQ(Found(tokens, "R  L"), "2[0,3) 1[3,4) ");  // Taken once.
}

TEST(AddedTokensTest, ASingleWordTouchesNoWordCharacter) {
  const AddedTokens tokens = Tokens({{.id = 1, .content = "w", .single_word = true}});
  EXPECT_EQ(Found(tokens, "w-w"), "1[0,1) 1[2,3) ");
  EXPECT_EQ(Found(tokens, "aw wb w_ \u00e9w w"), "1[13,14) ");
}

TEST(AddedTokensTest, ManyRangesCostNoMoreThanTheText) {
  const AddedTokens tokens = Tokens({{.id = 1, .content = "ab", .control = true}});
  std::string text;
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < 200'000; ++i) {
    ranges.push_back({text.size(), text.size() + 1});
    text += i % 2 == 0 ? "a" : "b";
  }
  EXPECT_EQ(tokens.Find(text, ranges).size(), 100'000u);  // All of them touch.
}

}  // namespace
}  // namespace renga
