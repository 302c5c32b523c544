#include "tests/simt/lazy_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace renga::test {
namespace {

using testing::IsEmpty;

std::array<char, 100> memory;

MemoryRange Range(int64_t first, int64_t bytes) { return {memory.data() + first, bytes}; }

constexpr LineId kA{1};
constexpr LineId kB{2};

// The n-th of a line, after the given moments.
Moment At(LineId line, int64_t n, const std::vector<Moment>& after = {}) {
  Moment moment{.line = line, .number = n, .after = {}};
  for (const Moment& other : after) moment.after.Join(other.after);
  moment.after.Set(line, n);
  return moment;
}

TEST(LazyOrderTest, RangesThatTouchBecomeOne) {
  const auto merged = MergeRanges(
      {Range(50, 10), Range(0, 10), Range(10, 5), Range(52, 2), Range(70, 0)});
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].begin, memory.data());
  EXPECT_EQ(merged[0].bytes, 15);
  EXPECT_EQ(merged[1].begin, memory.data() + 50);
  EXPECT_EQ(merged[1].bytes, 10);
}

TEST(LazyOrderTest, AMomentComesAfterWhatItsLineAndItsWaitsCameAfter) {
  const Moment a1 = At(kA, 1);
  const Moment b1 = At(kB, 1, {a1});
  const Moment a2 = At(kA, 2, {a1});
  EXPECT_TRUE(b1.ComesAfter(a1));
  EXPECT_FALSE(a1.ComesAfter(b1));
  EXPECT_FALSE(b1.ComesAfter(a2));
  EXPECT_FALSE(a2.ComesAfter(b1));
  EXPECT_TRUE(At(kHostLine, 1, {b1}).ComesAfter(a1));
}

TEST(AccessHistoryTest, OnlyOverlapsWithAWriteAndWithoutAnOrderAreRaces) {
  AccessHistory history(
      [](const char* at) { return "byte " + std::to_string(at - memory.data()); });
  const Moment a1 = At(kA, 1);
  history.Add(
      {.when = a1, .who = "one", .reads = {Range(50, 10)}, .writes = {Range(0, 10)}});
  history.Add(
      {.when = At(kB, 1), .who = "apart", .reads = {Range(10, 40)}, .writes = {}});
  history.Add(
      {.when = At(kB, 2), .who = "reader", .reads = {Range(55, 1)}, .writes = {}});
  history.Add(
      {.when = At(kB, 3, {a1}), .who = "later", .reads = {}, .writes = {Range(0, 60)}});
  EXPECT_THAT(history.races(), IsEmpty());
  history.Add(
      {.when = At(LineId{3}, 4), .who = "wild", .reads = {Range(9, 1)}, .writes = {}});
  ASSERT_EQ(history.races().size(), 2u);
  EXPECT_EQ(
      history.races()[0],
      "one and wild touch byte 9 without an order: the first writes, the second reads");
}

TEST(AccessHistoryTest, ARaceOfEachStepIsReportedOnce) {
  AccessHistory history;
  for (int step = 0; step < 5; ++step) {
    const std::string number = std::to_string(step);
    history.Add({.when = At(kA, step + 1),
                 .who = "kernel x (call " + number + ")",
                 .reads = {},
                 .writes = {Range(0, 1)}});
    history.Add({.when = At(kB, step + 1),
                 .who = "kernel y (call " + number + ")",
                 .reads = {},
                 .writes = {Range(0, 1)}});
  }
  EXPECT_LE(history.races().size(), 2u);  // x with y and y with x.
  EXPECT_GE(history.races().size(), 1u);
}

TEST(AccessHistoryTest, WhatTheHostAndAllThatWaitsComeAfterIsForgotten) {
  AccessHistory history;
  const Moment a1 = At(kA, 1);
  const Moment b1 = At(kB, 1);
  history.Add({.when = a1, .who = "a", .reads = {}, .writes = {Range(0, 1)}});
  history.Add({.when = b1, .who = "b", .reads = {}, .writes = {Range(1, 1)}});
  const Moment host = At(kHostLine, 1, {a1});
  const Moment waiting = At(kB, 2, {b1});
  history.Forget(host.after, {&waiting});
  EXPECT_EQ(history.size(), 2u);  // `waiting` may still race with a.
  history.Forget(host.after, {});
  EXPECT_EQ(history.size(), 1u);  // The host did not wait for b.
  history.Forget(At(kHostLine, 2, {a1, b1}).after, {});
  EXPECT_EQ(history.size(), 0u);
}

}  // namespace
}  // namespace renga::test
