#include "text/jinja/strings.h"

#include <gtest/gtest.h>

#include <random>

namespace renga::jinja {
namespace {

TEST(StringsTest, SpaceIsThatOfPython) {
  EXPECT_EQ(LeadingSpace(" \u3000\x1c x "), 6u);
  EXPECT_EQ(TrailingSpace(" x \u00a0"), 3u);
  EXPECT_EQ(LeadingSpace("\u200b"), 0u);
  EXPECT_EQ(TrailingSpace(""), 0u);
}

TEST(StringsTest, CaseFollowsUnicode) {
  EXPECT_EQ(Upper("a\u00e9\u00df\u03c9"), "A\u00c9SS\u03a9");
  EXPECT_EQ(Lower("A\u00c9\u03a9"), "a\u00e9\u03c9");
  EXPECT_EQ(Title("ab cD-ef"), "Ab Cd-Ef");
  EXPECT_EQ(Capitalize("\u00e9COLE x"), "\u00c9cole x");
}

TEST(StringsTest, StripTakesCharactersNotBytes) {
  const auto stripped = [](std::string_view text, std::string_view chars) {
    const ByteRange kept = Stripped(text, chars, {});
    return std::string(text.substr(kept.begin, kept.end - kept.begin));
  };
  EXPECT_EQ(stripped("\u00e9a\u00e9", "\u00e9"), "a");
  EXPECT_EQ(stripped("\u00e8a", "\u00e9"), "\u00e8a");  // They share a byte.
  EXPECT_EQ(stripped("   ", ""), "");
  EXPECT_EQ(stripped("", "x"), "");
}

TEST(StringsTest, FindAgreesWithTheLibraryForAnyNeedle) {
  std::mt19937 rng(20240613);
  for (int round = 0; round < 3000; ++round) {
    std::string text, needle;
    for (size_t n = rng() % 120; n > 0; --n) text += static_cast<char>('a' + rng() % 2);
    const size_t from = rng() % (text.size() + 1);
    const size_t at = rng() % (text.size() + 1);
    needle = text.substr(at, rng() % 40);
    if (rng() % 4 == 0) needle += "b";
    ASSERT_EQ(FindText(text, needle, from), text.find(needle, from)) << text << needle;
  }
}

TEST(StringsTest, FindIsLinearForALongNeedle) {
  const std::string text(size_t{1} << 20, 'a');
  const std::string needle = std::string(size_t{1} << 19, 'a') + "b";
  EXPECT_EQ(FindText(text, needle, 0), std::string::npos);
}

TEST(StringsTest, OffsetsCountCharacters) {
  EXPECT_EQ(OffsetOfCharacter("a\u00e9b", 2), 3u);
  EXPECT_EQ(OffsetOfCharacter("a\u00e9b", 9), 4u);
}

}  // namespace
}  // namespace renga::jinja
