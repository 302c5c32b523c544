// MemoryLedger: live bytes and buffers of the process by purpose.
//
// Whoever allocates in bulk says what for; the memory check reads. One ledger per process
// (AlignedBuffer books on it); tests make their own.
//
// Thread safety: every method may be called from any thread; booking is two atomic adds.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace renga {

enum class MemoryPurpose : uint8_t {
  kWeights,
  kKvPool,       // Reserved; how much of it is in use is the pool's to say.
  kActivations,  // Workspace of a step.
  kRequests,     // Prompts, answers and bookkeeping of requests that have not ended.
  kPrefixCache,  // Bookkeeping of cached pages.
  kOther,
};
inline constexpr size_t kMemoryPurposes = 6;
std::string_view MemoryPurposeName(MemoryPurpose purpose);  // "weights", "kv_pool", ...

class MemoryLedger {
 public:
  struct Account {
    int64_t bytes = 0;
    int64_t buffers = 0;
  };

  static MemoryLedger& Process();

  void Add(MemoryPurpose purpose, int64_t bytes, int64_t buffers = 1);
  void Remove(MemoryPurpose purpose, int64_t bytes, int64_t buffers = 1);
  Account Read(MemoryPurpose purpose) const;

 private:
  struct Slot {
    std::atomic<int64_t> bytes{0};
    std::atomic<int64_t> buffers{0};
  };
  std::array<Slot, kMemoryPurposes> slots_{};
};

// Books `bytes` while it lives. Movable.
class MemoryBooking {
 public:
  MemoryBooking() = default;
  MemoryBooking(MemoryPurpose purpose, int64_t bytes,
                MemoryLedger& ledger = MemoryLedger::Process());
  ~MemoryBooking();
  MemoryBooking(MemoryBooking&& other) noexcept;
  MemoryBooking& operator=(MemoryBooking&& other) noexcept;

 private:
  MemoryLedger* ledger_ = nullptr;
  MemoryPurpose purpose_ = MemoryPurpose::kOther;
  int64_t bytes_ = 0;
};

}  // namespace renga
