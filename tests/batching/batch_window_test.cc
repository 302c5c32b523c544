// BatchWindow: when requests are let go, how many have room, and in which batches.

#include "batching/batch_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/batching/window_requests.h"

namespace renga {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace test;

constexpr RequestId kA{1}, kB{2}, kC{3}, kD{4};

TEST(BatchWindowTest, ALoneRequestLeavesAtOnceWhileTheEngineIsIdle) {
  BatchWindow window({});
  window.Add(Request(kA, 10));
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kA)));
  EXPECT_EQ(window.size(), 0);
  EXPECT_EQ(window.waiting_tokens(), 0);
}

TEST(BatchWindowTest, WhileTheEngineIsBusyTheOldestWaitsTheWindowAndAllLeaveWithIt) {
  BatchWindow window({});
  window.Add(Request(kA, 10));
  window.Add(Request(kB, 12, At(30)));
  EXPECT_THAT(window.TakeReady(At(49), Busy()), IsEmpty());
  EXPECT_EQ(window.NextDeadline(), At(50));
  EXPECT_THAT(window.TakeReady(At(50), Busy()), ElementsAre(ElementsAre(kA, kB)));
  EXPECT_EQ(window.NextDeadline(), std::nullopt);
}

TEST(BatchWindowTest, AnEngineThatFallsIdleEndsTheWindow) {
  BatchWindow window({});
  window.Add(Request(kA, 10));
  EXPECT_THAT(window.TakeReady(At(10), Busy()), IsEmpty());
  EXPECT_THAT(window.TakeReady(At(11), Idle()), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, WithoutLeaveWhenIdleTheWindowAlwaysCounts) {
  BatchWindow window({.leave_when_idle = false});
  window.Add(Request(kA, 10));
  EXPECT_THAT(window.TakeReady(At(49), Idle()), IsEmpty());
  EXPECT_THAT(window.TakeReady(At(50), Idle()), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, MoreThanTheThresholdLeaveAtOnce) {
  BatchWindow window({.queue_threshold = 2});
  window.Add(Request(kA, 10));
  window.Add(Request(kB, 10));
  EXPECT_THAT(window.TakeReady(At(0), Busy()), IsEmpty());
  window.Add(Request(kC, 10));
  EXPECT_THAT(window.TakeReady(At(0), Busy()), ElementsAre(ElementsAre(kA, kB, kC)));
}

TEST(BatchWindowTest, ContinuousKnowsNoWindow) {
  BatchWindow window({.policy = BatchPolicy::kContinuous});
  window.Add(Request(kA, 10));
  EXPECT_THAT(window.TakeReady(At(0), Busy()), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, SerialRunsOneAtATimeInOrder) {
  BatchWindow window({.policy = BatchPolicy::kSerial});
  window.Add(Request(kA, 500));
  window.Add(Request(kB, 10));
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kA)));
  EXPECT_THAT(window.TakeReady(At(999), Busy()), IsEmpty());
  EXPECT_THAT(window.TakeReady(At(999), Idle()), ElementsAre(ElementsAre(kB)));
}

TEST(BatchWindowTest, SerialKnowsNeitherClassNorTenantNorLeavesOneBehind) {
  BatchWindow window({.policy = BatchPolicy::kSerial, .tenant_quantum_tokens = 1});
  window.Add(Of("x", With(Priority::kLow, Request(kA, 64 * 9))));
  window.Add(Of("x", With(Priority::kNormal, Request(kB, 10))));
  window.Add(Of("y", With(Priority::kHigh, Request(kC, 10))));
  EXPECT_THAT(window.TakeReady(At(0), Idle(8)), IsEmpty())
      << "A is first and has no room";
  EXPECT_THAT(window.TakeReady(At(0), Idle(9)), ElementsAre(ElementsAre(kA)));
  window.AddPreempted(Request(kD, 10));
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kD)));
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kB)));
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kC)));
}

TEST(BatchWindowTest, WhatLeavesIsSortedAndCutIntoBatchesOfSimilarLength) {
  BatchWindow window({});
  window.Add(Request(kA, 2000));
  window.Add(Request(kB, 64));
  window.Add(Request(kC, 1));
  window.Add(Request(kD, 66));  // 64 + 1 is the longest that shares C's batch.
  EXPECT_THAT(window.TakeReady(At(0), Idle()),
              ElementsAre(ElementsAre(kC, kB), ElementsAre(kD), ElementsAre(kA)));
}

TEST(BatchWindowTest, NoMoreThanMaxBatchLeaveTogetherAndTheOldestGoFirst) {
  BatchWindow window({.max_batch = 2});
  window.Add(Request(kA, 30));
  window.Add(Request(kB, 20));
  window.Add(Request(kC, 10));
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kB, kA)));
  EXPECT_THAT(window.TakeReady(At(0), Busy()), ElementsAre(ElementsAre(kC)))
      << "it was let go already";
}

TEST(BatchWindowTest, NoMoreRunThanMaxSequences) {
  BatchWindow window({.max_sequences = 4});
  window.Add(Request(kA, 1));
  window.Add(Request(kB, 1));
  EXPECT_THAT(window.TakeReady(At(99), Busy(1000, 4)), IsEmpty());
  EXPECT_EQ(window.NextDeadline(), std::nullopt) << "only a free place can help";
  EXPECT_THAT(window.TakeReady(At(99), Busy(1000, 3)), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, LeavesOnlyWithPagesForThePromptAndOneForEveryRunning) {
  BatchWindow window({});
  window.Add(Request(kA, 129));  // Three pages.
  EXPECT_THAT(window.TakeReady(At(50), Busy(6, 4)), IsEmpty());
  EXPECT_THAT(window.TakeReady(At(50), Busy(7, 4)), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, ThoseWhoLeaveTogetherCountAsRunning) {
  BatchWindow window({});
  window.Add(Request(kA, 64));
  window.Add(Request(kB, 64));
  EXPECT_THAT(window.TakeReady(At(0), Idle(2)), ElementsAre(ElementsAre(kA)));
  EXPECT_THAT(window.TakeReady(At(0), Busy(2, 1)), ElementsAre(ElementsAre(kB)));
}

TEST(BatchWindowTest, ARequestTakesAPlaceAndAPageOfHeadroomForEachOfItsChoices) {
  BatchWindow window({.max_sequences = 6});
  window.Add(Choices(4, Request(kA, 64)));
  window.Add(Request(kB, 64));
  window.Add(Request(kC, 64));
  EXPECT_THAT(window.TakeReady(At(50), Busy(1000, 3)), ElementsAre(ElementsAre(kB, kC)))
      << "three places: not enough for A";
  window.Add(Request(kB, 64));
  EXPECT_THAT(window.TakeReady(At(50), Busy(6, 1)), ElementsAre(ElementsAre(kA)))
      << "one of headroom before it leaves, five after; B needs 7 in all";
  EXPECT_THAT(window.TakeReady(At(50), Busy(6, 5)), ElementsAre(ElementsAre(kB)));
}

TEST(BatchWindowTest, ARequestWithMoreChoicesThanPlacesLeavesWhenItIsAlone) {
  BatchWindow window({.max_sequences = 4});
  window.Add(Choices(5, Request(kA, 10)));
  EXPECT_THAT(window.TakeReady(At(50), Busy(1000, 1)), IsEmpty());
  EXPECT_THAT(window.TakeReady(At(50), Idle()), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, EvictablePagesCountAsFree) {
  BatchWindow window({});
  window.Add(Request(kA, 640));
  EXPECT_THAT(window.TakeReady(At(0), {.free_pages = 4, .evictable_pages = 6}),
              ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, APreemptedRequestReturnsToTheFrontAndNobodyPassesIt) {
  BatchWindow window({});
  window.Add(Request(kA, 1, At(10)));
  window.AddPreempted(Request(kC, 300, At(5)));
  window.AddPreempted(Request(kB, 300, At(2)));
  EXPECT_THAT(window.TakeReady(At(60), Busy(5, 1)), IsEmpty()) << "B needs 5 + 1";
  EXPECT_THAT(window.TakeReady(At(60), Busy(6, 1)), ElementsAre(ElementsAre(kB)))
      << "C was preempted too, but arrived later";
}

TEST(BatchWindowTest, APreemptedRequestDoesNotWaitForTheWindow) {
  BatchWindow window({});
  window.AddPreempted(Request(kA, 300, At(5)));
  EXPECT_EQ(window.NextDeadline(), std::nullopt);
  EXPECT_THAT(window.TakeReady(At(20), Busy()), ElementsAre(ElementsAre(kA)));
}

TEST(BatchWindowTest, APreemptedRequestGoesBeforeEveryClassAndTenant) {
  BatchWindow window({});
  window.Add(With(Priority::kHigh, Request(kA, 1)));
  window.AddPreempted(With(Priority::kLow, Request(kB, 300)));
  EXPECT_THAT(window.TakeReady(At(60), Busy(5, 1)), IsEmpty());
  EXPECT_THAT(window.TakeReady(At(60), Busy(6, 1)), ElementsAre(ElementsAre(kB)));
}

TEST(BatchWindowTest, CountsWhoWaitsByThePriorityThatItCameWith) {
  BatchWindow window({.aging = std::chrono::milliseconds(10)});
  window.Add(With(Priority::kHigh, Request(kA, 10)));
  window.Add(With(Priority::kLow, Request(kB, 10)));
  window.AddPreempted(With(Priority::kLow, Request(kC, 10)));
  (void)window.TakeReady(At(40), Busy(0, 1));  // B has been lifted by now.
  EXPECT_EQ(window.waiting(Priority::kHigh), 1);
  EXPECT_EQ(window.waiting(Priority::kNormal), 0);
  EXPECT_EQ(window.waiting(Priority::kLow), 2);
  EXPECT_TRUE(window.Remove(kB));
  EXPECT_EQ(window.waiting(Priority::kLow), 1);
  (void)window.TakeReady(At(40), Idle());
  EXPECT_EQ(window.waiting(Priority::kHigh) + window.waiting(Priority::kLow), 0);
}

TEST(BatchWindowTest, RemovedRequestsNeverLeave) {
  BatchWindow window({});
  window.Add(Request(kA, 10));
  window.Add(Request(kB, 10));
  EXPECT_TRUE(window.Remove(kA));
  EXPECT_FALSE(window.Remove(kA));
  EXPECT_EQ(window.waiting_tokens(), 10);
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kB)));
}

TEST(BatchWindowTest, PressureHalvesTheLargestBatchAndQuietLetsItGrow) {
  BatchWindow window({.max_batch = 8});
  window.NotePressure(At(0));
  window.NotePressure(At(0));
  EXPECT_EQ(window.current_max_batch(), 2);
  (void)window.TakeReady(At(999), Idle());
  EXPECT_EQ(window.current_max_batch(), 2);
  (void)window.TakeReady(At(3000), Idle());
  EXPECT_EQ(window.current_max_batch(), 5);
  for (int i = 0; i < 10; ++i) window.NotePressure(At(3000));
  EXPECT_EQ(window.current_max_batch(), 1);
  (void)window.TakeReady(At(1'000'000), Idle());
  EXPECT_EQ(window.current_max_batch(), 8);
}

TEST(BatchWindowTest, UnderPressureFewerLeaveTogether) {
  BatchWindow window({.max_batch = 4});
  window.NotePressure(At(0));
  for (const RequestId id : {kA, kB, kC}) window.Add(Request(id, 10));
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kA, kB)));
  EXPECT_THAT(window.TakeReady(At(0), Idle()), ElementsAre(ElementsAre(kC)));
}

TEST(BatchWindowTest, UnknownPoliciesAreRefusedByName) {
  EXPECT_EQ(*ParseBatchPolicy("serial"), BatchPolicy::kSerial);
  EXPECT_EQ(ParseBatchPolicy("fair").status().field(), "scheduler.policy");
}

}  // namespace
}  // namespace renga
