// BatchWindow: who leaves first, by class, age and tenant, and who may pass whom.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "batching/batch_window.h"
#include "tests/batching/window_requests.h"

namespace renga {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using namespace test;

constexpr RequestId kA{1}, kB{2}, kC{3}, kD{4};
constexpr int32_t kPlaces = 64;

// All of a call, in one list.
std::vector<uint64_t> Taken(BatchWindow& window, TimePoint now,
                            const EngineState& state) {
  std::vector<uint64_t> ids;
  for (const BatchWindow::Batch& batch : window.TakeReady(now, state)) {
    for (const RequestId id : batch) ids.push_back(static_cast<uint64_t>(id));
  }
  return ids;
}
// With memory for everybody and one place: who is next. 0: nobody.
uint64_t Next(BatchWindow& window, TimePoint now) {
  const std::vector<uint64_t> ids = Taken(window, now, Busy(1'000'000, kPlaces - 1));
  return ids.empty() ? 0 : ids.front();
}
std::vector<uint64_t> Order(BatchWindow& window, TimePoint now) {
  std::vector<uint64_t> order;
  while (const uint64_t id = Next(window, now)) order.push_back(id);
  return order;
}
BatchWindowOptions Continuous() {
  return {.policy = BatchPolicy::kContinuous, .max_sequences = kPlaces};
}

// ---- Classes and age
// -------------------------------------------------------------------

TEST(BatchWindowOrderTest, HigherClassesLeaveFirstAndEachInOrderOfArrival) {
  BatchWindow window(Continuous());
  window.Add(With(Priority::kLow, Request(kA, 10)));
  window.Add(With(Priority::kNormal, Request(kB, 10)));
  window.Add(With(Priority::kHigh, Request(kC, 10)));
  window.Add(With(Priority::kNormal, Request(kD, 10)));
  EXPECT_THAT(Order(window, At(0)), ElementsAre(3, 2, 4, 1));
}

TEST(BatchWindowOrderTest, EachAgingOfWaitingLiftsByOneClassUpToTheHighest) {
  BatchWindowOptions options = Continuous();
  options.aging = milliseconds(100);
  for (const auto& [now, order] : {std::pair{99, std::vector<uint64_t>{3, 2, 1}},
                                   std::pair{100, std::vector<uint64_t>{3, 1, 2}},
                                   std::pair{199, std::vector<uint64_t>{3, 1, 2}},
                                   std::pair{200, std::vector<uint64_t>{1, 3, 2}},
                                   std::pair{100'000, std::vector<uint64_t>{1, 2, 3}}}) {
    BatchWindow window(options);
    window.Add(With(Priority::kLow, Request(kA, 10, At(0))));
    window.Add(With(Priority::kNormal, Request(kB, 10, At(150))));
    window.Add(With(Priority::kHigh, Request(kC, 10, At(150))));
    EXPECT_EQ(Order(window, At(now)), order) << now;
  }
}

TEST(BatchWindowOrderTest, WithoutAgingNobodyIsLifted) {
  BatchWindowOptions options = Continuous();
  options.aging = Duration{};
  BatchWindow window(options);
  window.Add(With(Priority::kLow, Request(kA, 10)));
  window.Add(With(Priority::kHigh, Request(kB, 10, At(1'000'000))));
  EXPECT_THAT(Order(window, At(1'000'000)), ElementsAre(2, 1));
}

// Ten a second arrive in the highest class and ten leave.
TEST(BatchWindowOrderTest, AFloodOfTheHighestClassDelaysTheLowestByTwiceTheAging) {
  BatchWindowOptions options = Continuous();
  options.aging = milliseconds(1000);
  BatchWindow window(options);
  window.Add(With(Priority::kLow, Request(kA, 10)));
  int64_t now = 0;
  for (uint64_t id = 100;; ++id) {
    window.Add(With(Priority::kHigh, Request(RequestId{id}, 10, At(now))));
    if (Next(window, At(now)) == 1) break;
    now += 100;
    ASSERT_LE(now, 2000);
  }
  EXPECT_EQ(now, 2000);
}

TEST(BatchWindowOrderTest, WhoIsLiftedSharesItsNewClassLikeTheOthersThere) {
  BatchWindowOptions options = Continuous();
  options.aging = milliseconds(100);
  options.tenant_quantum_tokens = 20;
  BatchWindow window(options);
  for (uint64_t id = 100; id < 110; ++id) {
    window.Add(Of("flood", With(Priority::kHigh, Request(RequestId{id}, 10, At(0)))));
  }
  for (uint64_t id = 1; id <= 3; ++id) {
    window.Add(Of("old", With(Priority::kLow, Request(RequestId{id}, 10, At(0)))));
  }
  EXPECT_EQ(Next(window, At(0)), 100u);
  EXPECT_THAT(Order(window, At(200)),
              ElementsAre(101, 1, 2, 102, 103, 3, 104, 105, 106, 107, 108, 109));
}

// ---- Tenants
// ---------------------------------------------------------------------------

TEST(BatchWindowOrderTest, TenantsTakeTurnsOfAQuantumAndEachIsFirstInFirstOut) {
  BatchWindowOptions options = Continuous();
  options.tenant_quantum_tokens = 100;
  BatchWindow window(options);
  for (uint64_t id = 1; id <= 5; ++id) window.Add(Of("x", Request(RequestId{id}, 50)));
  for (uint64_t id = 11; id <= 13; ++id) window.Add(Of("y", Request(RequestId{id}, 100)));
  EXPECT_THAT(Order(window, At(0)), ElementsAre(1, 2, 11, 3, 4, 12, 5, 13));
}

TEST(BatchWindowOrderTest, TurnsGoOnOverCallsAndWithinOne) {
  BatchWindowOptions options = Continuous();
  options.tenant_quantum_tokens = 100;
  options.max_batch = 3;
  BatchWindow window(options);
  for (uint64_t id = 1; id <= 5; ++id) window.Add(Of("x", Request(RequestId{id}, 50)));
  for (uint64_t id = 11; id <= 15; ++id) window.Add(Of("y", Request(RequestId{id}, 50)));
  EXPECT_THAT(Taken(window, At(0), Busy()), ElementsAre(1, 2, 11));
  EXPECT_THAT(Taken(window, At(0), Busy()), ElementsAre(12, 3, 4));
  EXPECT_THAT(Taken(window, At(0), Busy()), ElementsAre(13, 14, 5));
}

// Tokens, not requests: one sends 7 times longer prompts.
TEST(BatchWindowOrderTest, TenantsWithDifferentPromptsGetTheSameTokens) {
  BatchWindow window(Continuous());
  std::map<uint64_t, std::string> tenant_of;
  uint64_t next_id = 1;
  const std::map<std::string, int64_t> prompt = {{"short", 100}, {"long", 700}};
  const auto send = [&](const std::string& tenant) {
    tenant_of[next_id] = tenant;
    window.Add(Of(tenant, Request(RequestId{next_id++}, prompt.at(tenant))));
  };
  for (int i = 0; i < 20; ++i) {
    send("short");
    send("long");
  }
  std::map<std::string, int64_t> got = {{"short", 0}, {"long", 0}};
  for (int i = 0; i < 2000; ++i) {
    const std::string tenant = tenant_of.at(Next(window, At(0)));
    got[tenant] += prompt.at(tenant);
    send(tenant);
    ASSERT_LE(std::abs(got["short"] - got["long"]), 256 + 700);
  }
}

TEST(BatchWindowOrderTest, AFloodOfOneTenantDelaysAnotherByOneQuantum) {
  BatchWindow window(Continuous());  // 256 tokens.
  for (uint64_t id = 100; id < 300; ++id) {
    window.Add(Of("flood", Request(RequestId{id}, 64)));
  }
  for (int i = 0; i < 10; ++i) (void)Next(window, At(0));
  window.Add(Of("other", Request(kA, 200)));
  int before = 0;
  while (Next(window, At(0)) != 1) ++before;
  EXPECT_LE(before, 256 / 64);
}

TEST(BatchWindowOrderTest, FullyCachedRequestsPayAToken) {
  BatchWindowOptions options = Continuous();
  options.tenant_quantum_tokens = 3;
  BatchWindow window(options);
  for (uint64_t id = 1; id <= 5; ++id) window.Add(Of("x", Request(RequestId{id}, 0)));
  window.Add(Of("y", Request(RequestId{11}, 1)));
  EXPECT_THAT(Order(window, At(0)), ElementsAre(1, 2, 3, 11, 4, 5));
}

TEST(BatchWindowOrderTest, ARequestLargerThanTheQuantumLeavesAfterSoManyRounds) {
  BatchWindowOptions options = Continuous();
  options.tenant_quantum_tokens = 100;
  BatchWindow window(options);
  window.Add(Of("large", Request(kA, 450)));
  for (uint64_t id = 11; id < 30; ++id)
    window.Add(Of("small", Request(RequestId{id}, 100)));
  int before = 0;
  while (Next(window, At(0)) != 1) ++before;
  EXPECT_EQ(before, 4) << "the fifth round pays for it";
}

TEST(BatchWindowOrderTest, ATenantThatReturnsHasNothingSavedUp) {
  BatchWindowOptions options = Continuous();
  options.tenant_quantum_tokens = 100;
  BatchWindow window(options);
  window.Add(Of("large", Request(kA, 450)));
  for (uint64_t id = 11; id < 40; ++id)
    window.Add(Of("small", Request(RequestId{id}, 100)));
  for (int i = 0; i < 4; ++i) EXPECT_GE(Next(window, At(0)), 11u);
  EXPECT_TRUE(window.Remove(kA));
  window.Add(Of("large", Request(kB, 450)));
  for (int i = 0; i < 4; ++i) EXPECT_GE(Next(window, At(0)), 11u);
}

TEST(BatchWindowOrderTest, TenantsThatDontWaitAreForgotten) {
  BatchWindow window(Continuous());
  for (uint64_t id = 1; id <= 50'000; ++id) {
    window.Add(Of("tenant " + std::to_string(id), Request(RequestId{id}, 10)));
    ASSERT_EQ(window.tenants(), 1);
    if (id % 2 == 0) {
      ASSERT_TRUE(window.Remove(RequestId{id}));
    } else {
      ASSERT_EQ(Next(window, At(0)), id);
    }
    ASSERT_EQ(window.tenants(), 0);
  }
}

// ---- Overtaking
// ------------------------------------------------------------------------

TEST(BatchWindowOrderTest, ARequestWithoutRoomIsOvertakenAtMostMaxOvertakesTimes) {
  BatchWindow window({.max_overtakes = 3});
  window.Add(Request(RequestId{100}, 64 * 7));
  int passed = 0;
  for (uint64_t id = 1; id <= 10; ++id) {
    window.Add(Request(RequestId{id}, 1));
    passed += static_cast<int>(Taken(window, At(100), Busy(4, 1)).size());
  }
  EXPECT_EQ(passed, 3);
  EXPECT_EQ(Taken(window, At(100), Idle(8)).back(), 100u) << "room: it goes first";
}

TEST(BatchWindowOrderTest, WithoutOvertakesNobodyPasses) {
  BatchWindow window({.max_overtakes = 0});
  window.Add(Request(kA, 64 * 7));
  window.Add(Request(kB, 1));
  EXPECT_THAT(Taken(window, At(100), Busy(4, 1)), IsEmpty());
  EXPECT_THAT(Taken(window, At(100), Busy(8, 1)), ElementsAre(1));
}

TEST(BatchWindowOrderTest, OthersOfAllTenantsAndOfLowerClassesCountAsOvertaking) {
  BatchWindow window({.max_overtakes = 3});
  window.Add(Of("x", Request(kA, 64 * 7)));
  EXPECT_THAT(Taken(window, At(100), Busy(4, 1)), IsEmpty());
  window.Add(Of("x", Request(RequestId{11}, 1)));
  window.Add(Of("y", Request(RequestId{12}, 1)));
  window.Add(Of("z", With(Priority::kLow, Request(RequestId{13}, 1))));
  window.Add(Of("y", Request(RequestId{14}, 1)));
  window.Add(Of("y", With(Priority::kHigh, Request(RequestId{15}, 1))));
  EXPECT_THAT(Taken(window, At(100), Busy(3, 1)), ElementsAre(15)) << "by right";
  EXPECT_THAT(Taken(window, At(100), Busy(3, 1)), ElementsAre(11));
  EXPECT_THAT(Taken(window, At(100), Busy(3, 1)), ElementsAre(12));
  EXPECT_TRUE(window.Remove(RequestId{14}));
  EXPECT_THAT(Taken(window, At(100), Busy(3, 1)), ElementsAre(13));
  window.Add(Of("y", With(Priority::kHigh, Request(RequestId{16}, 1))));
  EXPECT_THAT(Taken(window, At(100), Busy(3, 1)), IsEmpty()) << "not even a higher class";
  EXPECT_THAT(Taken(window, At(100), Busy(9, 1)), ElementsAre(1));
}

TEST(BatchWindowOrderTest, AHigherClassDoesNotCountForOneWithoutRoomInALowerOne) {
  BatchWindow window({.max_overtakes = 2});
  window.Add(With(Priority::kLow, Request(kA, 64 * 7)));
  EXPECT_THAT(Taken(window, At(100), Busy(4, 1)), IsEmpty()) << "A's turn";
  window.Add(With(Priority::kHigh, Request(kB, 64 * 7)));
  EXPECT_THAT(Taken(window, At(100), Busy(4, 1)), IsEmpty()) << "B's turn";
  for (const uint64_t id : {11u, 12u, 13u}) window.Add(Request(RequestId{id}, 1));
  EXPECT_THAT(Taken(window, At(100), Busy(9, 3)), ElementsAre(11, 12)) << "they pass B";
  EXPECT_TRUE(window.Remove(kB));
  EXPECT_THAT(Taken(window, At(100), Busy(9, 3)), ElementsAre(13));
  for (const uint64_t id : {14u, 15u, 16u}) {
    window.Add(With(Priority::kLow, Request(RequestId{id}, 1)));
  }
  EXPECT_THAT(Taken(window, At(100), Busy(9, 3)), ElementsAre(14, 15)) << "they pass A";
}

TEST(BatchWindowOrderTest, WhoseTurnCameKeepsItWhileOthersPass) {
  BatchWindowOptions options = Continuous();
  options.tenant_quantum_tokens = 64;
  BatchWindow window(options);
  window.Add(Of("x", Request(kA, 640)));
  EXPECT_THAT(Taken(window, At(0), Busy(5, 1)), IsEmpty());
  for (uint64_t id = 11; id <= 16; ++id) window.Add(Of("y", Request(RequestId{id}, 64)));
  EXPECT_THAT(Taken(window, At(0), Busy(5, 1)), ElementsAre(11, 12));
  EXPECT_THAT(Taken(window, At(0), Busy(12, 1)), ElementsAre(1)) << "before 13 to 16";
}

TEST(BatchWindowOrderTest, WhoseTurnCameHasPaidForIt) {
  BatchWindowOptions options = Continuous();
  options.tenant_quantum_tokens = 64;
  BatchWindow window(options);
  window.Add(Of("x", Request(kA, 640)));
  window.Add(Of("x", Request(kB, 64)));
  window.Add(Of("y", Request(kC, 64)));
  EXPECT_THAT(Taken(window, At(0), Busy(2, 1)), ElementsAre(3)) << "y's turn is next";
}

TEST(BatchWindowOrderTest, WithoutRoomBehindOneWithoutRoomNobodyGetsATurn) {
  BatchWindow window({.max_overtakes = 2});
  window.Add(Request(kA, 64 * 8));
  window.Add(Request(kB, 64 * 9));
  window.Add(Of("y", With(Priority::kLow, Request(kC, 64 * 9))));
  window.Add(Request(RequestId{11}, 1));
  EXPECT_THAT(Taken(window, At(100), Busy(4, 1)), ElementsAre(11));
  EXPECT_THAT(Taken(window, At(100), Busy(9, 1)), ElementsAre(1));
  // B was passed once, but it was not its turn: two more may pass it.
  for (const uint64_t id : {12u, 13u, 14u}) window.Add(Request(RequestId{id}, 1));
  EXPECT_THAT(Taken(window, At(100), Busy(9, 1)), ElementsAre(12, 13));
  EXPECT_THAT(Taken(window, At(100), Busy(9, 1)), IsEmpty());
}

// A pool of 8 pages; every step brings a request of one page that runs for three steps.
// Meanwhile one that needs seven pages arrives: after how many steps does it start?
int StepsUntilTheLargeOneStarts(Priority large, Priority small, int small_tenants) {
  constexpr int64_t kPages = 8;
  constexpr int kArrives = 20;
  BatchWindow window({.aging = milliseconds(500)});
  std::deque<std::pair<int, int64_t>> running;  // Until which step; pages.
  for (int step = 0; step < 1000; ++step) {
    const TimePoint now = At(10 * step);
    while (!running.empty() && running.front().first <= step) running.pop_front();
    if (step == kArrives) window.Add(Of("0", With(large, Request(kA, 64 * 7, now))));
    const std::string tenant = std::to_string(step % small_tenants);
    const RequestId id{100 + static_cast<uint64_t>(step)};
    window.Add(Of(tenant, With(small, Request(id, 64, now))));
    int64_t used = 0;
    for (const auto& [end, pages] : running) used += pages;
    const EngineState state{.busy = !running.empty(),
                            .free_pages = kPages - used,
                            .running = static_cast<int32_t>(running.size())};
    for (const uint64_t taken : Taken(window, now, state)) {
      if (taken == static_cast<uint64_t>(kA)) return step - kArrives;
      running.emplace_back(step + 3, 1);
    }
  }
  return 1000;
}

TEST(BatchWindowOrderTest, UnderSteadyLoadOneThatNeedsMostOfThePoolStartsWithinABound) {
  // Up to 5 steps of window, 8 that pass it, 3 until the last of them has ended.
  constexpr int kBound = 5 + 8 + 3;
  for (const int tenants : {1, 5}) {
    const auto steps = [tenants](Priority large, Priority small) {
      return StepsUntilTheLargeOneStarts(large, small, tenants);
    };
    EXPECT_LE(steps(Priority::kNormal, Priority::kNormal), kBound);
    EXPECT_LE(steps(Priority::kHigh, Priority::kNormal), kBound);
    // Once in 50 steps aging lifts it; smaller ones of a higher class go first by right.
    EXPECT_LE(steps(Priority::kNormal, Priority::kHigh), 50 + kBound);
    EXPECT_LE(steps(Priority::kLow, Priority::kHigh), 100 + kBound);
    EXPECT_GE(steps(Priority::kLow, Priority::kHigh), 100);
  }
}

}  // namespace
}  // namespace renga
