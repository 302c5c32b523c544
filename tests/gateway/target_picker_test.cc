#include "gateway/target_picker.h"

#include <gtest/gtest.h>

#include <string>

namespace renga {
namespace {

TimePoint At(int ms) {
  return TimePoint{} + std::chrono::hours(1) + std::chrono::milliseconds(ms);
}

TEST(TargetPickerTest, WithoutASessionTheyTakeTurns) {
  TargetPicker picker(3);
  for (const int expected : {0, 1, 2, 0, 1}) {
    EXPECT_EQ(picker.Pick("", {}, At(0)), expected);
  }
}

TEST(TargetPickerTest, ASessionStaysAndSessionsSpread) {
  TargetPicker picker(4);
  std::vector<int> counts(4);
  for (int i = 0; i < 1000; ++i) {
    const std::string session = "s" + std::to_string(i);
    const int target = picker.Pick(session, {}, At(0));
    EXPECT_EQ(picker.Pick(session, {}, At(0)), target);
    ++counts[static_cast<size_t>(target)];
  }
  for (const int count : counts) EXPECT_GT(count, 150);
}

TEST(TargetPickerTest, WhenOneIsLostOnlyItsOwnSessionsMove) {
  TargetPicker picker(4);
  TargetPicker without(4);
  without.Failed(2, At(0));
  for (int i = 0; i < 200; ++i) {
    const std::string session = "s" + std::to_string(i);
    const int before = picker.Pick(session, {}, At(1));
    const int after = without.Pick(session, {}, At(1));
    if (before != 2) {
      EXPECT_EQ(after, before);
    } else {
      EXPECT_NE(after, 2);
    }
  }
}

TEST(TargetPickerTest, OneThatFailedRestsAndComesBack) {
  TargetPicker picker(2);
  picker.Failed(0, At(0));
  EXPECT_EQ(picker.Pick("", {}, At(999)), 1);
  EXPECT_EQ(picker.Pick("", {}, At(999)), 1);
  EXPECT_EQ(picker.Pick("", {}, At(1000)), 0);
  picker.Failed(1, At(2000));
  picker.Worked(1);
  EXPECT_EQ(picker.Pick("", {}, At(2000)), 1);
}

TEST(TargetPickerTest, OnlyTheFirstOfSeveralFailuresIsNews) {
  TargetPicker picker(2);
  EXPECT_FALSE(picker.Worked(0));
  EXPECT_TRUE(picker.Failed(0, At(0)));
  EXPECT_FALSE(picker.Failed(0, At(5000)));
  EXPECT_TRUE(picker.Failed(1, At(5000)));
  EXPECT_TRUE(picker.Worked(0));
  EXPECT_FALSE(picker.Worked(0));
  EXPECT_TRUE(picker.Failed(0, At(6000)));
}

TEST(TargetPickerTest, IfAllRestTheyAreTriedAllTheSameEachOnce) {
  TargetPicker picker(2);
  picker.Failed(0, At(0));
  picker.Failed(1, At(0));
  const int first = picker.Pick("", {}, At(1));
  const int second = picker.Pick("", {first}, At(1));
  EXPECT_EQ(first + second, 1);
  EXPECT_EQ(picker.Pick("", {first, second}, At(1)), -1);
}

}  // namespace
}  // namespace renga
