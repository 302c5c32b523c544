// WeightUploader: two pinned buffers that weights go to the device through, so that one
// is packed while the other one is copied.
//
//   Buffer(bytes) -> fill it -> Send(to, bytes) -> ... -> Finish
//
// Copies run on a stream of their own. Errors are the device's.
//
// Thread rule: the device's; what fills a buffer is the caller's affair.

#pragma once

#include <array>
#include <cstdint>

#include "backend/device.h"
#include "backend/device_memory.h"
#include "renga/status.h"

namespace renga {

class WeightUploader {
 public:
  static StatusOr<WeightUploader> Make(Device& device, int64_t buffer_bytes);

  int64_t buffer_bytes() const { return buffer_bytes_; }

  // The next buffer, as soon as its last copy is done. More than buffer_bytes() makes it
  // larger.
  StatusOr<uint8_t*> Buffer(int64_t bytes);
  // Copies the buffer that Buffer gave to the device.
  Status Send(void* to, int64_t bytes);
  // Until all copies are done.
  Status Finish();

 private:
  struct Half {
    PinnedMemory memory;
    int64_t bytes = 0;
    EventId copied{};
    bool in_use = false;  // A copy from it was begun.
  };

  WeightUploader(Device& device, int64_t buffer_bytes)
      : device_(&device), buffer_bytes_(buffer_bytes) {}

  Device* device_;
  int64_t buffer_bytes_;
  StreamId stream_{};
  std::array<Half, 2> halves_;
  size_t next_ = 0;
};

}  // namespace renga
