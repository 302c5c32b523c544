// AlignedBuffer: owning, aligned, sized memory for weights, pages and activations.
//
// Memory is zero-filled by the kernel and touched lazily: a large buffer costs address
// space until it is written. Huge pages are asked for above 2 MiB. Every buffer is booked
// in the process's MemoryLedger, by what it is for, until it is given back.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/memory_ledger.h"

namespace renga {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // `bytes` of zeroed memory, 4096-byte aligned; `data() == nullptr` if there is none.
  static AlignedBuffer Allocate(size_t bytes,
                                MemoryPurpose purpose = MemoryPurpose::kOther);

  ~AlignedBuffer() { Free(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        booking_(std::move(other.booking_)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(booking_, other.booking_);
    return *this;
  }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

  template <class T>
  std::span<T> As() {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }
  template <class T>
  std::span<const T> As() const {
    return {reinterpret_cast<const T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  AlignedBuffer(std::byte* data, size_t bytes, MemoryPurpose purpose)
      : data_(data), bytes_(bytes), booking_(purpose, static_cast<int64_t>(bytes)) {}
  void Free();

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  MemoryBooking booking_;
};

}  // namespace renga
