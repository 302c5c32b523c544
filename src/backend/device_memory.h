// Memory on a Device, and host memory that it can copy from: owned, given back by itself.
//
// Thread rule: the device's.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "base/memory_ledger.h"
#include "renga/status.h"

namespace renga {

// One allocation. The device outlives it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // ResourceExhausted says for `what`, how much is missing.
  static StatusOr<DeviceMemory> Allocate(Device& device, int64_t bytes,
                                         MemoryPurpose purpose, const char* what);
  ~DeviceMemory() { Release(); }
  DeviceMemory(DeviceMemory&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  template <class T>
  T* As() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  void Release() {
    if (data_ != nullptr) device_->Free(data_);
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Host memory that copies read and write when they run.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  static StatusOr<PinnedMemory> Allocate(Device& device, int64_t bytes);
  ~PinnedMemory() { Release(); }
  PinnedMemory(PinnedMemory&& other) noexcept
      : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    return *this;
  }

  template <class T>
  T* As() const {
    return static_cast<T*>(data_);
  }

 private:
  void Release() {
    if (data_ != nullptr) device_->FreePinned(data_);
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
};

// Many allocations that live as long as the arena: cut from large blocks, each aligned to
// 256 bytes.
class DeviceArena {
 public:
  // `block_bytes` 0: each allocation is one of the device's, as tools that look for
  // overruns want it.
  DeviceArena(Device& device, MemoryPurpose purpose, int64_t block_bytes)
      : device_(device), purpose_(purpose), block_bytes_(block_bytes) {}

  StatusOr<void*> Allocate(int64_t bytes, const char* what);

 private:
  Device& device_;
  const MemoryPurpose purpose_;
  const int64_t block_bytes_;
  std::vector<DeviceMemory> blocks_;
  char* free_ = nullptr;  // In the last block that was made to be shared...
  int64_t left_ = 0;      // ... so many bytes.
};

}  // namespace renga
