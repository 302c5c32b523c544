// See weight_uploader.h.

#include "backend/weight_uploader.h"

#include <algorithm>

#include "base/status_macros.h"

namespace renga {

StatusOr<WeightUploader> WeightUploader::Make(Device& device, int64_t buffer_bytes) {
  WeightUploader uploader(device, buffer_bytes);
  RENGA_ASSIGN_OR_RETURN(uploader.stream_, device.CreateStream());
  for (Half& half : uploader.halves_) {
    RENGA_ASSIGN_OR_RETURN(half.copied, device.CreateEvent());
  }
  return uploader;
}

StatusOr<uint8_t*> WeightUploader::Buffer(int64_t bytes) {
  Half& half = halves_[next_];
  if (half.in_use) RENGA_RETURN_IF_ERROR(device_->SynchronizeEvent(half.copied));
  half.in_use = false;
  if (bytes > half.bytes) {
    half.bytes = 0;
    half.memory = PinnedMemory();
    const int64_t wanted = std::max(bytes, buffer_bytes_);
    RENGA_ASSIGN_OR_RETURN(half.memory, PinnedMemory::Allocate(*device_, wanted));
    half.bytes = wanted;
  }
  return half.memory.As<uint8_t>();
}

Status WeightUploader::Send(void* to, int64_t bytes) {
  Half& half = halves_[next_];
  half.in_use = true;
  next_ = 1 - next_;
  RENGA_RETURN_IF_ERROR(
      device_->CopyToDevice(to, half.memory.As<uint8_t>(), bytes, stream_));
  return device_->Record(half.copied, stream_);
}

Status WeightUploader::Finish() { return device_->Synchronize(stream_); }

}  // namespace renga
