// SimtDevice: a Device whose kernels run under the emulator, at once, when they are
// launched. Streams and events order nothing that is not in order already.
//
// A launch in which the emulator found something returns Internal with its reports.
//
// Thread safety: none, as Device.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/memory_ledger.h"
#include "kernels/cuda/launch.h"
#include "renga/status.h"
#include "tests/simt/simt.h"

namespace renga::test {

// Runs the plain product of GemmShape and reports as RunKernel does.
SimtRun RunGemm(const GemmShape& shape, SimtMemory& memory, const SimtOptions& options);

struct SimtDeviceOptions {
  SimtOptions simt{};
  int64_t total_bytes = int64_t{1} << 30;  // Allocate fails above it.
  // A Fill with 0xff of what was never written leaves it so: tests poison outputs thus.
  bool fill_poisons = true;
};

class SimtDevice final : public Device {
 public:
  using Device::Launch;

  explicit SimtDevice(std::vector<EmulatedKernel> kernels,
                      SimtDeviceOptions options = {});
  ~SimtDevice() override;

  // ---- What only the emulator knows.
  const std::vector<SimtReport>& reports() const { return reports_; }
  // Of the last launch; of a replay, the sum of its launches.
  const SimtCounters& last_counters() const { return counters_; }
  int64_t launches() const { return launches_; }
  // The buffer that holds `at`, in reports and counters.
  void Name(const void* at, std::string name) { memory_.Name(at, std::move(name)); }
  // Reading the range in a kernel is an error until somebody writes it.
  void Poison(void* at, int64_t bytes) { memory_.Poison(at, bytes); }
  bool FullyWritten(const void* at, int64_t bytes) {
    return memory_.FullyWritten(at, bytes);
  }
  SimtMemory& memory() { return memory_; }
  void set_seed(uint32_t seed) { options_.simt.seed = seed; }

  // ---- Device.
  DeviceInfo info() const override;
  StatusOr<int64_t> FreeBytes() override;
  StatusOr<void*> Allocate(int64_t bytes, MemoryPurpose purpose) override;
  void Free(void* memory) override;
  StatusOr<void*> AllocatePinned(int64_t bytes) override;
  void FreePinned(void* memory) override;
  StatusOr<StreamId> CreateStream() override;
  StatusOr<EventId> CreateEvent() override;
  Status Record(EventId event, StreamId stream) override;
  Status Wait(StreamId stream, EventId event) override;
  Status Synchronize(StreamId stream) override;
  Status SynchronizeEvent(EventId event) override;
  Status CopyToDevice(void* to, const void* from, int64_t bytes,
                      StreamId stream) override;
  Status CopyToHost(void* to, const void* from, int64_t bytes, StreamId stream) override;
  Status CopyOnDevice(void* to, const void* from, int64_t bytes,
                      StreamId stream) override;
  Status Fill(void* to, uint8_t byte, int64_t bytes, StreamId stream) override;
  Status Launch(const cuda::KernelLaunch& launch, const void* args, size_t args_bytes,
                StreamId stream) override;
  Status Gemm(const GemmShape& shape, StreamId stream) override;
  Status BeginCapture(StreamId stream) override;
  StatusOr<GraphId> EndCapture(StreamId stream) override;
  Status Replay(GraphId graph, StreamId stream) override;
  void DestroyGraph(GraphId graph) override;

 private:
  struct Operation;
  using Tape = std::vector<Operation>;

  Status Submit(Operation operation, StreamId stream);
  Status Run(const Operation& operation);
  Status RunLaunch(const Operation& operation);
  Status Finish(SimtRun run, const char* name);
  Status CheckStream(StreamId stream) const;
  Status NotInCapture(const char* call) const;

  std::map<cuda::KernelId, EmulatedKernel> kernels_;
  SimtDeviceOptions options_;
  SimtMemory memory_;
  std::map<void*, MemoryBooking> bookings_;
  int64_t used_bytes_ = 0;
  std::map<void*, int64_t> pinned_;
  int32_t streams_ = 0;
  int32_t events_ = 0;
  // While capturing: the streams that belong to it, and the events recorded in it.
  std::unique_ptr<Tape> capture_;
  StreamId capture_origin_{};
  std::set<StreamId> captured_streams_;
  std::set<EventId> captured_events_;
  std::map<GraphId, Tape> graphs_;
  int32_t next_graph_ = 0;

  std::vector<SimtReport> reports_;
  SimtCounters counters_;
  int64_t launches_ = 0;
};

}  // namespace renga::test
