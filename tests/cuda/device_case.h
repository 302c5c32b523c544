// What checks of CUDA kernels share. A check is a plain function on a Device: the gtest
// programs of this folder run it under the SIMT emulator, renga_gpu_check on a GPU. So it
// uses no gtest, and its bounds hold for both.
//
// Thread safety: none.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "renga/status.h"

namespace renga::test {

// small: what the emulator does in seconds; large: what shows speed and long sums.
enum class CheckSize { kSmall, kLarge };

struct CheckResult {
  std::string name;  // "rms_norm/n:576/rows:3"
  double error = 0.0;
  double bound = 0.0;
  bool ok = false;
  std::string detail{};  // Where the first wrong value is.
};
using CheckResults = std::vector<CheckResult>;

// Ends the program: a check cannot go on without its device.
inline void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}
template <class T>
T Must(StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

// `size` elements on the device between two guards; all bytes 0xff (NaN) at first.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer(Device& device, int64_t size, StreamId stream)
      : device_(&device), stream_(stream), size_(size) {
    memory_ = static_cast<char*>(Must(device.Allocate(Bytes(), MemoryPurpose::kOther)));
    Must(device.Fill(memory_, 0xff, Bytes(), stream));
  }
  DeviceBuffer(Device& device, const std::vector<T>& values, StreamId stream)
      : DeviceBuffer(device, static_cast<int64_t>(values.size()), stream) {
    Upload(values);
  }
  ~DeviceBuffer() {
    if (memory_ != nullptr) device_->Free(memory_);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : device_(other.device_),
        stream_(other.stream_),
        size_(other.size_),
        memory_(std::exchange(other.memory_, nullptr)) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;

  T* data() const { return reinterpret_cast<T*>(memory_ + kGuard); }
  int64_t size() const { return size_; }
  void Upload(const std::vector<T>& values) {
    Must(device_->CopyToDevice(data(), values.data(),
                               static_cast<int64_t>(values.size() * sizeof(T)), stream_));
    Must(device_->Synchronize(stream_));
  }
  std::vector<T> Download() const {
    std::vector<T> values(static_cast<size_t>(size_));
    Must(device_->CopyToHost(values.data(), data(),
                             size_ * static_cast<int64_t>(sizeof(T)), stream_));
    Must(device_->Synchronize(stream_));
    return values;
  }
  bool GuardsIntact() const {
    std::vector<char> all(static_cast<size_t>(Bytes()));
    Must(device_->CopyToHost(all.data(), memory_, Bytes(), stream_));
    Must(device_->Synchronize(stream_));
    for (int64_t i = 0; i < Bytes(); ++i) {
      const bool guard = i < kGuard || i >= kGuard + size_ * int64_t{sizeof(T)};
      if (guard && all[static_cast<size_t>(i)] != '\xff') return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 256;
  int64_t Bytes() const { return size_ * static_cast<int64_t>(sizeof(T)) + 2 * kGuard; }

  Device* device_;
  StreamId stream_;
  int64_t size_;
  char* memory_ = nullptr;
};

inline std::vector<float> Normal(int64_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

// ||got - wanted|| / ||wanted||; a NaN counts as infinitely wrong.
inline double RelativeError(const std::vector<double>& got,
                            const std::vector<double>& wanted) {
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double d = got[i] - wanted[i];
    difference += d * d;
    norm += wanted[i] * wanted[i];
  }
  const double error = std::sqrt(difference / std::max(norm, 1e-300));
  return std::isfinite(error) ? error : HUGE_VAL;
}

}  // namespace renga::test
