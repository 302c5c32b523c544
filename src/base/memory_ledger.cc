#include "base/memory_ledger.h"

#include <utility>

namespace renga {

std::string_view MemoryPurposeName(MemoryPurpose purpose) {
  switch (purpose) {
    case MemoryPurpose::kWeights:
      return "weights";
    case MemoryPurpose::kKvPool:
      return "kv_pool";
    case MemoryPurpose::kActivations:
      return "activations";
    case MemoryPurpose::kRequests:
      return "requests";
    case MemoryPurpose::kPrefixCache:
      return "prefix_cache";
    case MemoryPurpose::kOther:
      return "other";
  }
  return "other";
}

MemoryLedger& MemoryLedger::Process() {
  static MemoryLedger ledger;
  return ledger;
}

void MemoryLedger::Add(MemoryPurpose purpose, int64_t bytes, int64_t buffers) {
  Slot& slot = slots_[static_cast<size_t>(purpose)];
  slot.bytes.fetch_add(bytes, std::memory_order_relaxed);
  slot.buffers.fetch_add(buffers, std::memory_order_relaxed);
}

void MemoryLedger::Remove(MemoryPurpose purpose, int64_t bytes, int64_t buffers) {
  Add(purpose, -bytes, -buffers);
}

MemoryLedger::Account MemoryLedger::Read(MemoryPurpose purpose) const {
  const Slot& slot = slots_[static_cast<size_t>(purpose)];
  return {.bytes = slot.bytes.load(std::memory_order_relaxed),
          .buffers = slot.buffers.load(std::memory_order_relaxed)};
}

MemoryBooking::MemoryBooking(MemoryPurpose purpose, int64_t bytes, MemoryLedger& ledger)
    : ledger_(&ledger), purpose_(purpose), bytes_(bytes) {
  ledger.Add(purpose, bytes);
}

MemoryBooking::~MemoryBooking() {
  if (ledger_ != nullptr) ledger_->Remove(purpose_, bytes_);
}

MemoryBooking::MemoryBooking(MemoryBooking&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      purpose_(other.purpose_),
      bytes_(other.bytes_) {}

MemoryBooking& MemoryBooking::operator=(MemoryBooking&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(purpose_, other.purpose_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace renga
