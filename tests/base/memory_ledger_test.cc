#include "base/memory_ledger.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace renga {
namespace {

TEST(MemoryLedgerTest, EveryPurposeHasItsOwnName) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kMemoryPurposes; ++i) {
    EXPECT_TRUE(names.insert(MemoryPurposeName(static_cast<MemoryPurpose>(i))).second);
  }
}

TEST(MemoryLedgerTest, WhatIsAddedAndRemovedIsKeptByPurpose) {
  MemoryLedger ledger;
  ledger.Add(MemoryPurpose::kRequests, 1000);
  ledger.Add(MemoryPurpose::kRequests, 500, 3);
  ledger.Add(MemoryPurpose::kWeights, 7);
  ledger.Remove(MemoryPurpose::kRequests, 1000);
  EXPECT_EQ(ledger.Read(MemoryPurpose::kRequests).bytes, 500);
  EXPECT_EQ(ledger.Read(MemoryPurpose::kRequests).buffers, 3);
  EXPECT_EQ(ledger.Read(MemoryPurpose::kWeights).bytes, 7);
  EXPECT_EQ(ledger.Read(MemoryPurpose::kOther).buffers, 0);
}

TEST(MemoryLedgerTest, ABookingIsGivenBackOnceWhoeverHoldsItLast) {
  MemoryLedger ledger;
  {
    MemoryBooking first(MemoryPurpose::kRequests, 100, ledger);
    MemoryBooking second(std::move(first));
    MemoryBooking third;
    third = std::move(second);
    EXPECT_EQ(ledger.Read(MemoryPurpose::kRequests).bytes, 100);
    third = MemoryBooking(MemoryPurpose::kRequests, 30, ledger);
    EXPECT_EQ(ledger.Read(MemoryPurpose::kRequests).bytes, 30);
    EXPECT_EQ(ledger.Read(MemoryPurpose::kRequests).buffers, 1);
  }
  EXPECT_EQ(ledger.Read(MemoryPurpose::kRequests).bytes, 0);
  EXPECT_EQ(ledger.Read(MemoryPurpose::kRequests).buffers, 0);
}

TEST(MemoryLedgerTest, ManyThreadsBookAndNothingIsLost) {
  MemoryLedger ledger;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const MemoryBooking held(MemoryPurpose::kRequests, i, ledger);
        ledger.Add(MemoryPurpose::kOther, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.Read(MemoryPurpose::kRequests).bytes, 0);
  EXPECT_EQ(ledger.Read(MemoryPurpose::kOther).bytes, 4000);
}

}  // namespace
}  // namespace renga
