// One launch of each kernel at a stated size (a Llama of 8B: width 4096, 32 query and 8
// KV heads of 128, feed-forward 14336, vocabulary 128256), with the bytes it has to move
// and the operations it does. From these come the bounds in kernels/README.md and what
// `renga_gpu_check speed` times.
//
// Bytes are the least that any implementation moves: every operand once.
//
// Thread safety: none.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backend/device.h"
#include "kernels/cuda/launch.h"

namespace renga::test {

// The buffers of cases. Without a device nothing is allocated and all addresses are null:
// launch shapes and bytes can be read off all the same.
class CaseMemory {
 public:
  CaseMemory() = default;
  CaseMemory(Device& device, StreamId stream) : device_(&device), stream_(stream) {}
  ~CaseMemory() { Clear(); }
  CaseMemory(const CaseMemory&) = delete;
  CaseMemory& operator=(const CaseMemory&) = delete;

  bool real() const { return device_ != nullptr; }
  void Clear();

  // f16 numbers in [-1, 1], any of which may also be read as codes or f32.
  template <class T>
  T* Random(int64_t bytes) {
    return static_cast<T*>(RandomBytes(bytes));
  }
  template <class T>
  T* Values(const std::vector<T>& values) {
    return static_cast<T*>(
        Copy(values.data(), static_cast<int64_t>(values.size() * sizeof(T))));
  }
  const int32_t* Count(int32_t n) { return Values(std::vector<int32_t>{n}); }

 private:
  void* RandomBytes(int64_t bytes);
  void* Copy(const void* values, int64_t bytes);
  void* Allocate(int64_t bytes);

  Device* device_ = nullptr;
  StreamId stream_{};
  std::vector<void*> buffers_;
};

struct StatedCase {
  std::string name;  // "product/q4/28672x4096/rows:1"
  cuda::KernelLaunch launch;
  // Arguments of launches that take turns, so that what one reads is not in the L2 cache.
  std::vector<std::vector<std::byte>> args;
  double bytes = 0;
  double flops = 0;
  bool tensor_cores = false;
};

// Makes the cases one after another; each one's memory is gone when the next one is made.
class StatedCases {
 public:
  virtual ~StatedCases() = default;
  virtual void Visit(StatedCase stated) = 0;
};
void ForEachStatedCase(CaseMemory& memory, StatedCases& visitor);

template <class Args>
std::vector<std::byte> BytesOf(const Args& args) {
  std::vector<std::byte> bytes(sizeof args);
  std::memcpy(bytes.data(), &args, sizeof args);
  return bytes;
}

}  // namespace renga::test
