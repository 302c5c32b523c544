#include "transport/call_gate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/fakes/fake_generation_service.h"

namespace renga {
namespace {

TEST(CallGateTest, LetsCallsInOnlyWhileOpen) {
  FakeGenerationService service;
  CallGate gate;
  EXPECT_EQ(gate.Enter().status().code(), StatusCode::kUnavailable);
  gate.Open(service);
  EXPECT_EQ(*gate.Enter(), &service);
  EXPECT_EQ(gate.inside(), 1);
  gate.Close();
  EXPECT_EQ(gate.Enter().status().code(), StatusCode::kUnavailable);
  gate.Open(service);  // Closed for good.
  EXPECT_FALSE(gate.Enter().ok());
  EXPECT_EQ(gate.inside(), 1);
}

TEST(CallGateTest, WhatIsAboutRunningWorkComesInFromOpenOn) {
  FakeGenerationService service;
  CallGate gate;
  EXPECT_EQ(gate.EnterEvenIfClosed().status().code(), StatusCode::kUnavailable);
  gate.Open(service);
  gate.Close();
  EXPECT_EQ(*gate.EnterEvenIfClosed(), &service);
  EXPECT_EQ(gate.inside(), 1);
  gate.Leave();
  EXPECT_EQ(gate.inside(), 0);
}

TEST(CallGateTest, WaitsForTheLastCallOrTheDeadline) {
  FakeGenerationService service;
  CallGate gate;
  gate.Open(service);
  ASSERT_TRUE(gate.Enter().ok());
  ASSERT_TRUE(gate.Enter().ok());
  const TimePoint now = std::chrono::steady_clock::now();
  EXPECT_FALSE(gate.WaitUntilEmpty(now));
  std::thread leaving([&] {
    gate.Leave();
    gate.Leave();
  });
  EXPECT_TRUE(gate.WaitUntilEmpty(now + std::chrono::hours(1)));
  EXPECT_TRUE(gate.WaitUntilEmpty(now));
  leaving.join();
}

}  // namespace
}  // namespace renga
