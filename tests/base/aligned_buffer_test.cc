#include "base/aligned_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace renga {
namespace {

TEST(AlignedBufferTest, IsZeroedAndPageAligned) {
  AlignedBuffer buffer = AlignedBuffer::Allocate(100'001);
  ASSERT_NE(buffer.data(), nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
  for (const uint8_t byte : buffer.As<uint8_t>()) ASSERT_EQ(byte, 0);
  EXPECT_EQ(buffer.As<float>().size(), 25'000u);
}

TEST(AlignedBufferTest, AMoveLeavesOneOwner) {
  AlignedBuffer a = AlignedBuffer::Allocate(4096);
  std::byte* data = a.data();
  AlignedBuffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  AlignedBuffer c;
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.size(), 4096u);
}

TEST(AlignedBufferTest, IsBookedByPurposeWhileItLives) {
  const MemoryLedger& ledger = MemoryLedger::Process();
  const auto [bytes, buffers] = ledger.Read(MemoryPurpose::kActivations);
  {
    AlignedBuffer a = AlignedBuffer::Allocate(10'000, MemoryPurpose::kActivations);
    EXPECT_EQ(ledger.Read(MemoryPurpose::kActivations).bytes, bytes + 10'000);
    EXPECT_EQ(ledger.Read(MemoryPurpose::kActivations).buffers, buffers + 1);
    AlignedBuffer b = std::move(a);
    a = AlignedBuffer::Allocate(500, MemoryPurpose::kActivations);
    b = AlignedBuffer();
    EXPECT_EQ(ledger.Read(MemoryPurpose::kActivations).bytes, bytes + 500);
    // What could not be had is not booked.
    EXPECT_EQ(
        AlignedBuffer::Allocate(size_t{1} << 62, MemoryPurpose::kActivations).data(),
        nullptr);
  }
  EXPECT_EQ(ledger.Read(MemoryPurpose::kActivations).bytes, bytes);
  EXPECT_EQ(ledger.Read(MemoryPurpose::kActivations).buffers, buffers);
}

TEST(AlignedBufferTest, WhatCannotBeHadIsNull) {
  EXPECT_EQ(AlignedBuffer::Allocate(0).data(), nullptr);
  EXPECT_EQ(AlignedBuffer::Allocate(size_t{1} << 62).data(), nullptr);
}

TEST(AlignedBufferTest, AddressSpaceIsReservedNotTouched) {
  AlignedBuffer buffer = AlignedBuffer::Allocate(size_t{1} << 32);
  ASSERT_NE(buffer.data(), nullptr);
  buffer.As<uint8_t>()[buffer.size() - 1] = 1;
}

}  // namespace
}  // namespace renga
