// Device: one CUDA device as the CUDA backend sees it: memory, streams, events, launches,
// graphs. The seam between code that runs anywhere and the CUDA runtime.
//
// CudaDevice is the real one. Tests have SimtDevice (runs at once, under the emulator)
// and LazyDevice (queues everything and runs it in any order that streams and events
// allow).
//
// The rules are CUDA's: work in a stream runs in order, streams run beside each other,
// Wait orders one after another's Record; a copy from pinned memory reads it when it
// runs, not when it is called; an error in a kernel shows at a later call and stays (the
// device is lost). While a stream is captured nothing runs; only Copy*, Fill, Launch,
// Gemm, Record and Wait on captured streams are legal.
//
// Errors: ResourceExhausted where memory is missing (the message says how much was asked
// for and how much is free); Unavailable where the device is lost; InvalidArgument and
// Internal for the rest. Thread rule: one thread calls.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/memory_ledger.h"
#include "kernels/cuda/launch.h"
#include "renga/status.h"

namespace renga {

enum class StreamId : int32_t {};
enum class EventId : int32_t {};
enum class GraphId : int32_t {};

struct DeviceInfo {
  std::string name;  // "NVIDIA A10G"
  int32_t index = 0;
  int32_t major = 0;  // Compute capability.
  int32_t minor = 0;
  int32_t processors = 0;  // SMs.
  int64_t total_bytes = 0;
  std::string pci_id{};  // "0000:65:00.0": what other tools know it by; empty: none.
};

// out[rows][outputs] (+)= x[rows][cols] . weights[outputs][cols]^T; f16 in, f32 sums.
struct GemmShape {
  const uint16_t* weights = nullptr;  // f16, row by row
  const uint16_t* x = nullptr;        // f16
  float* out = nullptr;
  int64_t weights_stride = 0;
  int64_t x_stride = 0;
  int64_t out_stride = 0;
  int32_t rows = 0;
  int32_t outputs = 0;
  int32_t cols = 0;
  bool add = false;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceInfo info() const = 0;
  virtual StatusOr<int64_t> FreeBytes() = 0;

  // ---- Memory. Contents are undefined at first. Device memory is aligned to 256 bytes
  // and booked on the ledger until Free.
  virtual StatusOr<void*> Allocate(int64_t bytes, MemoryPurpose purpose) = 0;
  virtual void Free(void* memory) = 0;
  // Host memory that copies read and write while the host goes on.
  virtual StatusOr<void*> AllocatePinned(int64_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

  // ---- Order.
  virtual StatusOr<StreamId> CreateStream() = 0;
  virtual StatusOr<EventId> CreateEvent() = 0;
  virtual Status Record(EventId event, StreamId stream) = 0;
  virtual Status Wait(StreamId stream, EventId event) = 0;
  virtual Status Synchronize(StreamId stream) = 0;  // The host waits.
  virtual Status SynchronizeEvent(EventId event) = 0;

  // ---- Work.
  virtual Status CopyToDevice(void* to, const void* from, int64_t bytes,
                              StreamId stream) = 0;
  virtual Status CopyToHost(void* to, const void* from, int64_t bytes,
                            StreamId stream) = 0;
  virtual Status CopyOnDevice(void* to, const void* from, int64_t bytes,
                              StreamId stream) = 0;
  virtual Status Fill(void* to, uint8_t byte, int64_t bytes, StreamId stream) = 0;
  // `args` is copied at the call.
  virtual Status Launch(const cuda::KernelLaunch& launch, const void* args,
                        size_t args_bytes, StreamId stream) = 0;
  virtual Status Gemm(const GemmShape& shape, StreamId stream) = 0;

  // ---- Graphs: what was called between Begin and End, to be replayed as a whole.
  virtual Status BeginCapture(StreamId stream) = 0;
  virtual StatusOr<GraphId> EndCapture(StreamId stream) = 0;
  virtual Status Replay(GraphId graph, StreamId stream) = 0;
  virtual void DestroyGraph(GraphId graph) = 0;

  template <class Args>
  Status Launch(const cuda::KernelLaunch& launch, const Args& args, StreamId stream) {
    return Launch(launch, &args, sizeof args, stream);
  }
};

}  // namespace renga
