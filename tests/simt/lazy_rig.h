// What tests of LazyDevice share: a device with two streams and a few buffers.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "renga/status.h"
#include "tests/simt/lazy_device.h"
#include "tests/simt/lazy_kernels.h"

namespace renga::test {

inline constexpr uint32_t kLazySeeds = 20;

inline std::vector<EmulatedKernel> LazyKernelTable() {
  const EmulatedKernels kernels = LazyKernels();
  return {kernels.first, kernels.first + kernels.count};
}

class LazyRig {
 public:
  static constexpr int32_t kBlocks = 4;
  static constexpr int64_t kWords = 128 * kBlocks;
  static constexpr int64_t kBytes = 4 * kWords;

  explicit LazyRig(const LazyDeviceOptions& options)
      : device(LazyKernelTable(), options),
        a(Get(device.CreateStream())),
        b(Get(device.CreateStream())),
        event(Get(device.CreateEvent())),
        x(NewWords()),
        y(NewWords()),
        zero(NewWords()),
        host_in(NewPinned()),
        host_out(NewPinned()) {
    std::iota(host_in, host_in + kWords, 0u);
    Do(device.Fill(zero, 0, kBytes, a));
    Do(device.Fill(x, 0, kBytes, a));
    Do(device.Fill(y, 0, kBytes, a));
    Do(device.Synchronize(a));
  }

  // A value that must be there; else the test fails and a default one stands for it.
  template <class T>
  static T Get(StatusOr<T> value) {
    EXPECT_TRUE(value.ok()) << value.status().ToString();
    return value.ok() ? *value : T{};
  }
  // What a right program does without failing. In a wrong one the device may be lost.
  static void Do(const Status& status) { static_cast<void>(status); }

  uint32_t* NewWords() {
    return static_cast<uint32_t*>(Get(device.Allocate(kBytes, MemoryPurpose::kOther)));
  }
  uint32_t* NewPinned() {
    return static_cast<uint32_t*>(Get(device.AllocatePinned(kBytes)));
  }

  Status Upload(uint32_t* to, StreamId stream) {
    return device.CopyToDevice(to, host_in, kBytes, stream);
  }
  Status Download(const uint32_t* from, StreamId stream) {
    return device.CopyToHost(host_out, from, kBytes, stream);
  }
  // to = from + amount[0] + baked
  Status Add(uint32_t* to, const uint32_t* from, const uint32_t* amount, StreamId stream,
             uint32_t baked = 0) {
    const LazyAddArgs args{.in = from, .amount = amount, .out = to, .baked = baked};
    return device.Launch(LazyAddLaunch(kBlocks), args, stream);
  }
  // Orders what comes next in `later` after what is in `earlier`.
  Status After(StreamId later, StreamId earlier) {
    if (Status status = device.Record(event, earlier); !status.ok()) return status;
    return device.Wait(later, event);
  }
  // Whether the words that came down are 0, 1, 2, ... + `offset`.
  bool GotCounting(uint32_t offset) const {
    for (uint32_t i = 0; i < kWords; ++i) {
      if (host_out[i] != i + offset) return false;
    }
    return true;
  }
  void FreeAll() {
    for (uint32_t* memory : {x, y, zero}) device.Free(memory);
    for (uint32_t* memory : {host_in, host_out}) device.FreePinned(memory);
  }
  std::string Reports() const {
    std::string all;
    for (const std::string& report : device.reports()) all += report + "\n";
    return all;
  }

  LazyDevice device;
  StreamId a;
  StreamId b;
  EventId event;
  uint32_t* x;
  uint32_t* y;
  uint32_t* zero;
  uint32_t* host_in;  // 0, 1, 2, ... at first.
  uint32_t* host_out;
};

}  // namespace renga::test
