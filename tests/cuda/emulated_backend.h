// The CUDA backend on an emulated device, for tests of the backend and of what stands on
// it.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda_backend.h"
#include "tests/cuda/emulated/emulated_kernels.h"
#include "tests/simt/forwarding_device.h"
#include "tests/simt/lazy_device.h"
#include "tests/simt/simt_device.h"

namespace renga::test {

// Counts calls, and fails where a test wants it.
class CountingDevice final : public ForwardingDevice {
 public:
  using Device::Launch;
  using ForwardingDevice::ForwardingDevice;

  int64_t launches = 0;  // Outside of captures.
  int64_t replays = 0;
  int64_t captures = 0;
  int64_t gemms = 0;
  // Called before an allocation or a launch; what is not OK is what it returns.
  std::function<Status(const char* call)> fail{};

  StatusOr<void*> Allocate(int64_t bytes, MemoryPurpose purpose) override {
    if (Status status = Ask("Allocate"); !status.ok()) return status;
    return ForwardingDevice::Allocate(bytes, purpose);
  }
  Status Launch(const cuda::KernelLaunch& launch, const void* args, size_t args_bytes,
                StreamId stream) override {
    if (Status status = Ask("Launch"); !status.ok()) return status;
    if (!capturing_) ++launches;
    return ForwardingDevice::Launch(launch, args, args_bytes, stream);
  }
  Status Gemm(const GemmShape& shape, StreamId stream) override {
    ++gemms;
    return ForwardingDevice::Gemm(shape, stream);
  }
  Status BeginCapture(StreamId stream) override {
    if (Status status = Ask("BeginCapture"); !status.ok()) return status;
    capturing_ = true;
    return ForwardingDevice::BeginCapture(stream);
  }
  StatusOr<GraphId> EndCapture(StreamId stream) override {
    capturing_ = false;
    ++captures;
    return ForwardingDevice::EndCapture(stream);
  }
  Status Replay(GraphId graph, StreamId stream) override {
    if (Status status = Ask("Replay"); !status.ok()) return status;
    ++replays;
    return ForwardingDevice::Replay(graph, stream);
  }

 private:
  Status Ask(const char* call) const { return fail ? fail(call) : OkStatus(); }

  bool capturing_ = false;
};

struct EmulatedOptions {
  CudaBackendOptions backend{.threads = 1, .arena_block_bytes = 0};
  SimtDeviceOptions device{};
};

// A backend and the devices under it, which outlive it.
struct EmulatedCuda {
  std::unique_ptr<SimtDevice> simt;
  CountingDevice* counting = nullptr;  // The backend's.
  std::unique_ptr<Backend> backend;
};

inline EmulatedCuda MakeEmulatedCuda(const EmulatedOptions& options = {}) {
  EmulatedCuda made;
  made.simt = std::make_unique<SimtDevice>(AllEmulatedKernels(), options.device);
  auto counting = std::make_unique<CountingDevice>(*made.simt);
  made.counting = counting.get();
  auto backend = MakeCudaBackend(std::move(counting), options.backend);
  EXPECT_EQ(backend.status().ToString(), "OK");
  made.backend = *std::move(backend);
  return made;
}

// The same on a device that runs everything late and in any order that CUDA allows.
struct LazyCuda {
  std::unique_ptr<LazyDevice> device;
  std::unique_ptr<Backend> backend;

  // Gives the backend up: what it left on the device, and what the device found.
  std::vector<std::string> End() {
    backend.reset();
    std::vector<std::string> found = device->reports();
    const std::vector<std::string> leaks = device->Leaks();
    found.insert(found.end(), leaks.begin(), leaks.end());
    return found;
  }
};

inline LazyCuda MakeLazyCuda(const LazyDeviceOptions& options) {
  LazyCuda made;
  made.device = std::make_unique<LazyDevice>(AllEmulatedKernels(), options);
  auto backend = MakeCudaBackend(std::make_unique<ForwardingDevice>(*made.device),
                                 {.threads = 1, .arena_block_bytes = 0});
  EXPECT_EQ(backend.status().ToString(), "OK");
  made.backend = *std::move(backend);
  return made;
}

}  // namespace renga::test
