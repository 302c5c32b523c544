// See device_memory.h.

#include "backend/device_memory.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"

namespace renga {

namespace {

constexpr int64_t kAlignment = 256;

// What an operator needs to know: for what, and how much more.
Status Missing(Device& device, int64_t bytes, const char* what, const Status& why) {
  if (why.code() != StatusCode::kResourceExhausted) return why;
  std::string message = "the device has no memory for " + std::string(what) + " of " +
                        std::to_string(bytes) + " bytes";
  if (const StatusOr<int64_t> left = device.FreeBytes(); left.ok()) {
    message += ": " + std::to_string(*left) + " are free, " +
               std::to_string(std::max<int64_t>(bytes - *left, 0)) + " are missing";
  }
  return ResourceExhausted(message);
}

}  // namespace

StatusOr<DeviceMemory> DeviceMemory::Allocate(Device& device, int64_t bytes,
                                              MemoryPurpose purpose, const char* what) {
  const int64_t wanted = std::max<int64_t>(bytes, kAlignment);
  const StatusOr<void*> data = device.Allocate(wanted, purpose);
  if (!data.ok()) return Missing(device, wanted, what, data.status());
  DeviceMemory memory;
  memory.device_ = &device;
  memory.data_ = *data;
  memory.bytes_ = wanted;
  return memory;
}

StatusOr<PinnedMemory> PinnedMemory::Allocate(Device& device, int64_t bytes) {
  PinnedMemory memory;
  RENGA_ASSIGN_OR_RETURN(memory.data_,
                         device.AllocatePinned(std::max<int64_t>(bytes, kAlignment)));
  memory.device_ = &device;
  return memory;
}

StatusOr<void*> DeviceArena::Allocate(int64_t bytes, const char* what) {
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded > left_) {
    const bool shared = rounded < block_bytes_;
    RENGA_ASSIGN_OR_RETURN(
        DeviceMemory block,
        DeviceMemory::Allocate(device_, shared ? block_bytes_ : bytes, purpose_, what));
    blocks_.push_back(std::move(block));
    if (!shared) return blocks_.back().As<void>();
    free_ = blocks_.back().As<char>();
    left_ = block_bytes_;
  }
  left_ -= rounded;
  return static_cast<void*>(std::exchange(free_, free_ + rounded));
}

}  // namespace renga
