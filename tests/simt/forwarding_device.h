// ForwardingDevice: a Device that passes everything on to another, which outlives it. A
// backend owns its device; a test that wants to ask the device afterwards gives it this.
//
// Thread safety: none, as Device.

#pragma once

#include <string>

#include "backend/device.h"

namespace renga::test {

class ForwardingDevice : public Device {
 public:
  using Device::Launch;

  explicit ForwardingDevice(Device& to) : to_(to) {}

  DeviceInfo info() const override { return to_.info(); }
  StatusOr<int64_t> FreeBytes() override { return to_.FreeBytes(); }
  StatusOr<void*> Allocate(int64_t bytes, MemoryPurpose purpose) override {
    return to_.Allocate(bytes, purpose);
  }
  void Free(void* memory) override { to_.Free(memory); }
  StatusOr<void*> AllocatePinned(int64_t bytes) override {
    return to_.AllocatePinned(bytes);
  }
  void FreePinned(void* memory) override { to_.FreePinned(memory); }
  StatusOr<StreamId> CreateStream() override { return to_.CreateStream(); }
  StatusOr<EventId> CreateEvent() override { return to_.CreateEvent(); }
  Status Record(EventId event, StreamId stream) override {
    return to_.Record(event, stream);
  }
  Status Wait(StreamId stream, EventId event) override { return to_.Wait(stream, event); }
  Status Synchronize(StreamId stream) override { return to_.Synchronize(stream); }
  Status SynchronizeEvent(EventId event) override { return to_.SynchronizeEvent(event); }
  Status CopyToDevice(void* to, const void* from, int64_t bytes,
                      StreamId stream) override {
    return to_.CopyToDevice(to, from, bytes, stream);
  }
  Status CopyToHost(void* to, const void* from, int64_t bytes, StreamId stream) override {
    return to_.CopyToHost(to, from, bytes, stream);
  }
  Status CopyOnDevice(void* to, const void* from, int64_t bytes,
                      StreamId stream) override {
    return to_.CopyOnDevice(to, from, bytes, stream);
  }
  Status Fill(void* to, uint8_t byte, int64_t bytes, StreamId stream) override {
    return to_.Fill(to, byte, bytes, stream);
  }
  Status Launch(const cuda::KernelLaunch& launch, const void* args, size_t args_bytes,
                StreamId stream) override {
    return to_.Launch(launch, args, args_bytes, stream);
  }
  Status Gemm(const GemmShape& shape, StreamId stream) override {
    return to_.Gemm(shape, stream);
  }
  Status BeginCapture(StreamId stream) override { return to_.BeginCapture(stream); }
  StatusOr<GraphId> EndCapture(StreamId stream) override {
    return to_.EndCapture(stream);
  }
  Status Replay(GraphId graph, StreamId stream) override {
    return to_.Replay(graph, stream);
  }
  void DestroyGraph(GraphId graph) override { to_.DestroyGraph(graph); }

 private:
  Device& to_;
};

}  // namespace renga::test
