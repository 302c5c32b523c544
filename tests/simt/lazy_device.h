// LazyDevice: a Device on which everything happens as late and as oddly as CUDA allows.
// Kernels run under the emulator.
//
// A call queues its work; it runs when the host waits for it, in a random order among all
// that streams, events and graphs allow, sometimes with more than was asked for, seldom
// by itself. Pinned memory is read and written then, pageable memory at the call.
// Whatever the order was, two pieces of work (or one and the host) that touch the same
// memory without a path between them are reported. What the host does to pinned memory is
// seen where it spoils a waiting copy, and where tests note it (NoteHostRead,
// NoteHostWrite).
//
// Memory that is freed is given out again at the next chance, and is nobody's at once:
// the real Free waits for the device, but nothing in Device promises that.
//
// While a stream is captured, a call that Device forbids then fails and kills the
// capture. A replay runs the calls with the arguments that they had.
//
// Thread safety: none, as Device.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "backend/device.h"
#include "kernels/cuda/launch.h"
#include "renga/status.h"
#include "tests/simt/lazy_memory.h"
#include "tests/simt/lazy_order.h"
#include "tests/simt/simt.h"

namespace renga::test {

enum class DeviceCall : uint8_t {
  kAllocate,
  kAllocatePinned,
  kCreateStream,
  kCreateEvent,
  kRecord,
  kWait,
  kSynchronize,  // Also SynchronizeEvent.
  kCopy,         // All three.
  kFill,
  kLaunch,
  kGemm,
  kBeginCapture,
  kEndCapture,
  kReplay,
};
inline constexpr size_t kDeviceCalls = 14;

struct LazyDeviceOptions {
  uint32_t seed = 0;
  bool eager = false;  // Runs each call at once; races are reported all the same.
  SimtOptions simt{};  // Ranges are always on.
  int64_t total_bytes = int64_t{1} << 30;
  bool fill_poisons = true;  // See SimtDeviceOptions.
};

class LazyDevice final : public Device {
 public:
  using Device::Launch;

  explicit LazyDevice(std::vector<EmulatedKernel> kernels,
                      const LazyDeviceOptions& options = {});
  ~LazyDevice() override;

  // ---- What tests ask.
  // Everything found: races, use of freed memory, reports of kernels, bad frees, captures
  // that could not end. Empty: the program is right.
  std::vector<std::string> reports() const;
  std::vector<std::string> Leaks() const { return memory_.Leaks(); }
  int64_t used_bytes() const { return memory_.used_bytes(); }
  int64_t most_bytes() const { return memory_.most_bytes(); }  // Ever in use at a time.
  size_t pending() const { return pending_.size(); }
  // The buffer that holds `at`, in reports.
  void Name(const void* at, std::string name) { memory_.Name(at, std::move(name)); }
  // The host touches pinned memory now.
  void NoteHostRead(const void* at, int64_t bytes);
  void NoteHostWrite(const void* at, int64_t bytes);
  // The n-th such call from now on (1: the next) returns `status`. Unavailable stays, as
  // the loss of a device does.
  void FailAt(DeviceCall call, int64_t n, Status status);

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
  // One piece of work.
  struct Operation {
    enum class Kind : uint8_t { kCopyIn, kCopyOut, kCopyOnDevice, kFill, kLaunch, kGemm };
    Kind kind{};
    void* to = nullptr;
    const void* from = nullptr;
    int64_t bytes = 0;
    uint8_t byte = 0;
    std::vector<char> staged{};  // What a pageable source held at the call.
    const EmulatedKernel* kernel = nullptr;
    cuda::LaunchShape shape{};
    std::vector<char> args{};
    GemmShape gemm{};

    std::string Name() const;
  };
  using NodeId = int64_t;
  // Work that has been called.
  struct Node {
    Operation operation;
    Moment when;
    std::string name;            // With the number of the call.
    std::set<NodeId> needs;      // Only what has not run yet counts.
    std::vector<char> snapshot;  // Of a pinned source, at the call.
  };
  // The end of a line, or of what an event has recorded.
  struct Tip {
    LineClock after;
    std::set<NodeId> nodes;

    void Join(const Tip& other) {
      after.Join(other.after);
      nodes.insert(other.nodes.begin(), other.nodes.end());
    }
  };
  struct Stream {
    LineId line{};
    Tip tip{};
  };

  // A capture, and the graph that it becomes.
  struct TapeNode {
    Operation operation;
    int branch = 0;       // 0: the stream that is captured.
    std::set<int> needs;  // Indexes into the tape.
  };
  struct Tape {
    std::vector<TapeNode> nodes;
    std::set<int> ends;            // What the captured stream ends with.
    std::vector<LineId> branches;  // Of replays; the first is not used.
    Tip last;                      // Replays of one graph follow each other.
  };
  struct Capture {
    StreamId origin{};
    Tape tape;
    std::map<StreamId, int> branches;
    std::map<StreamId, std::set<int>> tips;
    std::map<EventId, std::set<int>> events;
    std::string death;  // Why it cannot end well; empty: it can.
  };

  Status Enter(DeviceCall call);
  Status CheckStream(StreamId stream);
  Status CheckEvent(EventId event) const;
  Status Kill(const std::string& why);
  Status CheckOnDevice(const void* at, int64_t bytes, const char* what);
  Status NotOfCapture(EventId event);
  Status CheckOnHost(const void* at, int64_t bytes);
  void Report(std::string text);
  LineId MakeLine() { return LineId{next_line_++}; }
  int64_t HostNow() const { return host_.Of(kHostLine); }
  // The next moment of the host.
  Moment HostMoment();
  void NoteHost(const char* who, std::vector<MemoryRange> reads,
                std::vector<MemoryRange> writes);

  Status Submit(Operation operation, StreamId stream);
  Status SubmitToCapture(Operation operation, StreamId stream);
  static bool AllReached(const Capture& capture);
  Status RecordInCapture(EventId event, StreamId stream);
  Status WaitInCapture(StreamId stream, EventId event);
  NodeId Enqueue(Operation operation, LineId line, const Tip& after);
  // What comes after a call: the device may go on by itself.
  Status Settle(const std::vector<NodeId>& called);
  void SpoilDestination(NodeId id);
  void RunOne(NodeId id);
  bool RunAny();  // A random one of those that may run.
  void RunUntil(const std::set<NodeId>& wanted);
  Status WaitFor(const Tip& tip);
  SimtRun Execute(const Node& node);
  void ExecuteCopy(const Node& node, SimtRun& run);
  void CheckLives(const Node& node, const SimtRun& run);
  bool Chance(uint32_t one_in) { return random_() % one_in == 0; }

  std::map<cuda::KernelId, EmulatedKernel> kernels_;
  const LazyDeviceOptions options_;
  std::mt19937 random_;
  LazyMemory memory_;
  Status lost_;
  struct Fault {
    int64_t calls_left = 0;
    Status status;
  };
  std::array<std::optional<Fault>, kDeviceCalls> faults_;

  LineClock host_;
  int32_t next_line_ = 1;
  std::vector<Stream> streams_;  // StreamId - 1
  std::vector<Tip> events_;      // EventId - 1
  std::map<NodeId, Node> pending_;
  NodeId next_node_ = 1;
  AccessHistory history_{[this](const char* at) { return memory_.Describe(at); }};
  std::vector<std::string> reports_;

  std::unique_ptr<Capture> capture_;   // null: none is going on.
  std::set<EventId> captured_events_;  // Recorded last in a capture.
  std::map<GraphId, Tape> graphs_;
  int32_t next_graph_ = 1;
};

}  // namespace renga::test
