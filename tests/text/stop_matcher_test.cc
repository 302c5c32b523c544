#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace renga {
namespace {

TEST(StopMatcherTest, HoldsTheLongestProperPrefix) {
  StopMatcher matcher({"aab", "ba"});
  EXPECT_EQ(matcher.Feed("xa"), std::nullopt);
  EXPECT_EQ(matcher.held(), 1u);
  EXPECT_EQ(matcher.Feed("aa"), std::nullopt);
  EXPECT_EQ(matcher.held(), 2u);
  EXPECT_EQ(matcher.Feed("x"), std::nullopt);
  EXPECT_EQ(matcher.held(), 0u);
}

TEST(StopMatcherTest, OffsetsCountAllTheText) {
  StopMatcher matcher({"END"});
  matcher.Feed("abcE");
  matcher.Feed("N");
  const auto match = matcher.Feed("DE");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->begin, 3u);
  EXPECT_EQ(matcher.stop(match->stop), "END");
}

TEST(StopMatcherTest, OfMatchesInOnePartTheFirstStartWinsThenTheShortest) {
  StopMatcher matcher({"c", "bcd", "bc"});
  const auto match = matcher.Feed("abcd");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->begin, 1u);
  EXPECT_EQ(matcher.stop(match->stop), "bc");
}

TEST(StopMatcherTest, WithoutStopStringsNothingMatchesOrIsHeld) {
  StopMatcher none({}), empty({""});
  EXPECT_EQ(none.Feed("abc"), std::nullopt);
  EXPECT_EQ(empty.Feed("abc"), std::nullopt);
  EXPECT_EQ(none.held(), 0u);
  EXPECT_EQ(empty.held(), 0u);
}

TEST(StopMatcherTest, CopiesReadTextsOfTheirOwn) {
  StopMatcher one({"END", "x"});
  one.Feed("aEN");
  StopMatcher two = one;
  EXPECT_EQ(one.Feed("-"), std::nullopt);
  const auto match = two.Feed("D");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->begin, 1u);
  EXPECT_EQ(match->stop, 0u);
  EXPECT_EQ(&one.stop(0), &two.stop(0)) << "the strings are there twice";
}

// A pattern made to make a naive search go back: quadratic work would not end.
TEST(StopMatcherTest, LongPeriodicStopsAreLinear) {
  const std::string stop = std::string(size_t{1} << 19, 'a') + "b";
  StopMatcher matcher({stop});
  const std::string text(size_t{1} << 21, 'a');
  EXPECT_EQ(matcher.Feed(text), std::nullopt);
  EXPECT_EQ(matcher.held(), stop.size() - 1);
  EXPECT_TRUE(matcher.Feed("b"));
}

}  // namespace
}  // namespace renga
