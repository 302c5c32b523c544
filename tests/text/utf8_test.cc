#include "text/utf8.h"

#include <gtest/gtest.h>

namespace renga {
namespace {

using Verdict = Utf8Char::Verdict;

TEST(Utf8Test, EveryCharacterReadsBackAndCutsAreSeen) {
  for (char32_t code = 0; code <= 0x10FFFF; code += code < 0x3000 ? 1 : 97) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string bytes;
    AppendUtf8(code, bytes);
    const Utf8Char c = DecodeUtf8(bytes + "x");
    ASSERT_EQ(c.verdict, Verdict::kValid) << std::hex << uint32_t{code};
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.length, bytes.size());
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const Utf8Char part = DecodeUtf8(std::string_view(bytes).substr(0, cut));
      ASSERT_EQ(part.verdict, Verdict::kCut);
      ASSERT_EQ(part.length, cut);
    }
  }
}

// Table 3-8 of the Unicode standard, and its neighbours.
TEST(Utf8Test, WrongPiecesAreMaximal) {
  const auto length = [](std::string_view bytes) {
    const Utf8Char c = DecodeUtf8(bytes);
    return c.verdict == Verdict::kInvalid ? static_cast<int>(c.length) : -1;
  };
  EXPECT_EQ(length("\x80"), 1);
  EXPECT_EQ(length("\xC0\x80"), 1);          // Overlong.
  EXPECT_EQ(length("\xE0\x80\x80"), 1);      // Overlong.
  EXPECT_EQ(length("\xED\xA0\x80"), 1);      // A surrogate.
  EXPECT_EQ(length("\xF4\x91\x92\x93"), 1);  // Above U+10FFFF.
  EXPECT_EQ(length("\xF5\x80\x80\x80"), 1);
  EXPECT_EQ(length("\xE1\x80\xE2\xF0"), 2);
  EXPECT_EQ(length("\xF0\x91\x92"
                   "A"),
            3);
  EXPECT_EQ(length("\xF1\xBF"
                   "A"),
            2);
}

TEST(Utf8Test, FindsTheFirstWrongByte) {
  EXPECT_EQ(FindInvalidUtf8(""), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("a\u00e9\U0001F600"), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("a\u00e9\xFF"), 3u);
  EXPECT_EQ(FindInvalidUtf8("a\xE2\x82"), 1u);
}

TEST(Utf8Test, ClassesOfCharacters) {
  for (const char32_t code : U"aZ\u00e9\u65e5\u02b0\u01c5") {
    if (code == 0) continue;  // The end of the literal.
    EXPECT_EQ(ClassOf(code), CharClass::kLetter) << uint32_t{code};
  }
  for (const char32_t code : {U'1', U'\u0662', U'\u00bd', U'\u2167'}) {
    EXPECT_EQ(ClassOf(code), CharClass::kNumber);
  }
  for (const char32_t code : {U' ', U'\n', U'\u0085', U'\u00a0', U'\u3000', U'\u2028'}) {
    EXPECT_EQ(ClassOf(code), CharClass::kSpace);
  }
  for (const char32_t code : {U'-', U'_', U'\u0301', U'\u200b', U'\ufeff', U'\x1c'}) {
    EXPECT_EQ(ClassOf(code), CharClass::kOther);
  }
  EXPECT_TRUE(IsWordCharacter(U'_'));
  EXPECT_TRUE(IsWordCharacter(U'\u0301'));
  EXPECT_FALSE(IsWordCharacter(U'-'));
  EXPECT_TRUE(IsPrintable(U' '));
  EXPECT_FALSE(IsPrintable(U'\u200b'));
  EXPECT_EQ(CountCharacters("a\u00e9\U0001F600"), 3);
}

}  // namespace
}  // namespace renga
