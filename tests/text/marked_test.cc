#include "text/jinja/marked.h"

#include <gtest/gtest.h>

#include <random>

namespace renga::jinja {
namespace {

// One letter per byte: T trusted, p plain.
std::string Marks(const MarkedText& text) {
  std::string marks(text.text.size(), 'p');
  for (const ByteRange& range : text.trusted) {
    for (size_t i = range.begin; i < range.end; ++i) marks[i] = 'T';
  }
  return marks;
}

TEST(MarkedTest, PartsKeepTheirMarks) {
  MarkedText text = TrustedText("ab");
  AppendPlain(text, "cd");
  AppendTrusted(text, "ef");
  EXPECT_EQ(text.text, "abcdef");
  EXPECT_EQ(Marks(text), "TTppTT");
  EXPECT_EQ(Marks(Slice(text, 1, 5)), "TppT");
  EXPECT_EQ(Marks(Slice(text, 2, 4)), "pp");
  EXPECT_EQ(Slice(text, 3, 3).text, "");
  EXPECT_FALSE(WhollyTrusted(text));
  EXPECT_TRUE(WhollyTrusted(Slice(text, 4, 6)));
  EXPECT_TRUE(WhollyTrusted({}));
}

TEST(MarkedTest, ChangedTextIsTrustedOnlyIfAllOfItsSourceIs) {
  MarkedText mixed = TrustedText("a");
  AppendPlain(mixed, "b");
  EXPECT_EQ(Marks(Changed(mixed, "AB")), "pp");
  EXPECT_EQ(Marks(Changed(TrustedText("ab"), "AB")), "TT");
}

TEST(MarkedTest, RandomCutsAndJoinsAgreeWithOneMarkPerByte) {
  std::mt19937 rng(20240612);
  for (int round = 0; round < 2000; ++round) {
    MarkedText text;
    std::string marks;
    for (int step = 0; step < 12; ++step) {
      if (rng() % 3 == 0 && !text.text.empty()) {
        const size_t begin = rng() % text.text.size();
        const size_t end = begin + rng() % (text.text.size() - begin + 1);
        const MarkedText slice = Slice(text, begin, end);
        ASSERT_EQ(Marks(slice), marks.substr(begin, end - begin));
        Append(text, slice);
        marks += marks.substr(begin, end - begin);
      } else {
        const std::string part(rng() % 4, 'x');
        const bool trusted = rng() % 2 == 0;
        trusted ? AppendTrusted(text, part) : AppendPlain(text, part);
        marks += std::string(part.size(), trusted ? 'T' : 'p');
      }
      ASSERT_EQ(Marks(text), marks);
      for (size_t i = 1; i < text.trusted.size(); ++i) {
        ASSERT_LT(text.trusted[i - 1].end, text.trusted[i].begin);
      }
    }
  }
}

}  // namespace
}  // namespace renga::jinja
