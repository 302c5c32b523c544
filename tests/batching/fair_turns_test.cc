// FairTurns: shares, large requests, forgetting, and its bound under random claims.

#include "batching/fair_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

namespace renga {
namespace {

using testing::ElementsAre;

constexpr int64_t kAbsent = FairTurns::kAbsent;
constexpr int64_t kNoClaim = FairTurns::kNoClaim;

std::vector<int32_t> Serve(FairTurns& turns, const std::vector<int64_t>& costs,
                           int times) {
  std::vector<int32_t> served;
  for (int i = 0; i < times; ++i) served.push_back(turns.Next(costs));
  return served;
}

TEST(FairTurnsTest, ATenantIsServedForAQuantumAndThenTheNext) {
  FairTurns turns(100);
  turns.Join(0);
  turns.Join(1);
  EXPECT_THAT(Serve(turns, {50, 50}, 6), ElementsAre(0, 0, 1, 1, 0, 0));
}

TEST(FairTurnsTest, WhatATurnLeavesIsSavedUp) {
  FairTurns turns(100);
  turns.Join(0);
  turns.Join(1);
  EXPECT_THAT(Serve(turns, {60, 100}, 5), ElementsAre(0, 1, 0, 0, 1))
      << "40 and 80 are left: two in the second round";
}

TEST(FairTurnsTest, ALargeRequestIsPaidForOverSeveralRounds) {
  FairTurns turns(100);
  turns.Join(0);
  turns.Join(1);
  EXPECT_THAT(Serve(turns, {250, 100}, 6), ElementsAre(1, 1, 0, 1, 1, 0));
}

TEST(FairTurnsTest, EmptyRoundsCostNothing) {
  FairTurns turns(1);
  turns.Join(0);
  turns.Join(1);
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THAT(Serve(turns, {huge, huge - 1}, 2), ElementsAre(1, 0));
}

TEST(FairTurnsTest, NobodyHasAClaim) {
  FairTurns turns(100);
  EXPECT_EQ(turns.Next({}), -1);
  turns.Join(0);
  EXPECT_THAT(Serve(turns, {kNoClaim}, 2), ElementsAre(-1, -1));
  EXPECT_EQ(turns.size(), 1);
}

TEST(FairTurnsTest, WithoutAClaimATenantGetsNothingAndKeepsWhatItHas) {
  FairTurns turns(100);
  turns.Join(0);
  turns.Join(1);
  EXPECT_THAT(Serve(turns, {70, 100}, 1), ElementsAre(0));  // 30 are left.
  EXPECT_THAT(Serve(turns, {kNoClaim, 100}, 5), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(Serve(turns, {130, 100}, 2), ElementsAre(0, 1)) << "30 + 100, no more";
  EXPECT_THAT(Serve(turns, {131, 100}, 2), ElementsAre(1, 0));
}

TEST(FairTurnsTest, WhoIsForgottenReturnsWithNothingSavedUp) {
  FairTurns turns(100);
  turns.Join(0);
  turns.Join(1);
  EXPECT_THAT(Serve(turns, {190, 40}, 3), ElementsAre(1, 1, 0)) << "10 are left";
  turns.Forget(0);
  EXPECT_THAT(Serve(turns, {kAbsent, 100}, 1), ElementsAre(1));
  turns.Join(0);
  EXPECT_THAT(Serve(turns, {110, 100}, 2), ElementsAre(1, 0));
}

TEST(FairTurnsTest, WhoIsAbsentIsForgottenAndNobodyInheritsTheTurn) {
  FairTurns turns(100);
  for (const int32_t tenant : {0, 1, 2}) turns.Join(tenant);
  EXPECT_THAT(Serve(turns, {60, 100, 100}, 1), ElementsAre(0));
  EXPECT_THAT(Serve(turns, {kAbsent, 100, 100}, 2), ElementsAre(1, 2));
  EXPECT_EQ(turns.size(), 2);
  turns.Join(0);
  turns.Join(0);
  EXPECT_EQ(turns.size(), 3) << "joining twice is joining once";
}

TEST(FairTurnsTest, ATurnEndsWithTheTenantThatHadIt) {
  FairTurns turns(100);
  turns.Join(0);
  turns.Join(1);
  EXPECT_THAT(Serve(turns, {100, 100}, 1), ElementsAre(0));
  turns.Forget(0);
  turns.Join(0);
  EXPECT_THAT(Serve(turns, {100, 100}, 3), ElementsAre(1, 0, 1));
}

// Whatever the requests cost: two tenants that always have one differ by at most a
// quantum and the largest request, at every moment.
TEST(FairTurnsTest, SharesDifferByNoMoreThanAQuantumAndOneRequest) {
  constexpr int kTenants = 5;
  constexpr int64_t kQuantum = 256;
  constexpr int64_t kLargest[kTenants] = {1, 30, 200, 900, 4000};
  std::mt19937 rng(11);
  FairTurns turns(kQuantum);
  std::vector<int64_t> costs(kTenants), served(kTenants, 0);
  for (int32_t t = 0; t < kTenants; ++t) turns.Join(t);
  const auto draw = [&](size_t t) {
    return 1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(kLargest[t]));
  };
  for (size_t t = 0; t < kTenants; ++t) costs[t] = draw(t);
  for (int i = 0; i < 50'000; ++i) {
    const int32_t next = turns.Next(costs);
    ASSERT_GE(next, 0);
    const size_t t = static_cast<size_t>(next);
    served[t] += costs[t];
    costs[t] = draw(t);
    const auto [least, most] = std::minmax_element(served.begin(), served.end());
    ASSERT_LE(*most - *least, kQuantum + kLargest[kTenants - 1]);
  }
}

}  // namespace
}  // namespace renga
