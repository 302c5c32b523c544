#include "tests/simt/simt_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "kernels/block_format.h"

namespace renga::test {

// One call, as a graph keeps it.
struct SimtDevice::Operation {
  enum class Kind : uint8_t { kCopyIn, kCopyOut, kCopyOnDevice, kFill, kLaunch, kGemm };
  Kind kind{};
  void* to = nullptr;
  const void* from = nullptr;
  int64_t bytes = 0;
  uint8_t byte = 0;
  cuda::KernelLaunch launch{};
  std::vector<char> args{};
  GemmShape gemm{};
};

namespace {

constexpr size_t kPinnedAlignment = 64;

void AddTraffic(const Traffic& from, Traffic& to) {
  to.requests += from.requests;
  to.sectors += from.sectors;
  to.bytes += from.bytes;
  to.distinct_sectors += from.distinct_sectors;
}

void AddCounters(const SimtCounters& from, SimtCounters& to) {
  AddTraffic(from.global.read, to.global.read);
  AddTraffic(from.global.written, to.global.written);
  for (const auto& [name, traffic] : from.buffers) {
    AddTraffic(traffic.read, to.buffers[name].read);
    AddTraffic(traffic.written, to.buffers[name].written);
  }
  to.shared_requests += from.shared_requests;
  to.shared_wavefronts += from.shared_wavefronts;
  to.ideal_wavefronts += from.ideal_wavefronts;
  to.products += from.products;
  to.steps += from.steps;
}

// One operand of a product, row by row: inside its buffer, and written where it is read.
class GemmCheck {
 public:
  GemmCheck(SimtMemory& memory, const SimtOptions& options, SimtRun& run)
      : memory_(memory), options_(options), run_(run) {}

  template <class T>
  bool Operand(const char* name, const T* first, int32_t rows, int32_t cols,
               int64_t stride, bool read) {
    const int64_t bytes = int64_t{cols} * static_cast<int64_t>(sizeof(T));
    for (int32_t row = 0; row < rows; ++row) {
      const T* at = first + row * stride;
      if (!memory_.Holds(at, bytes)) return Report(name, row, "out of bounds");
      const bool known = kSimtHooks && options_.checks;
      if (read && known && !memory_.FullyWritten(at, bytes)) {
        return Report(name, row, "read of uninitialised global memory");
      }
      const MemoryRange range{reinterpret_cast<const char*>(at), bytes};
      if (options_.ranges) (read ? run_.reads : run_.writes).push_back(range);
    }
    return true;
  }

 private:
  bool Report(const char* name, int32_t row, const char* what) {
    SimtReport report;
    report.what = what;
    report.detail = std::string(name) + ", row " + std::to_string(row);
    report.kernel = "Gemm";
    run_.reports.push_back(report);
    return false;
  }

  SimtMemory& memory_;
  const SimtOptions& options_;
  SimtRun& run_;
};

}  // namespace

SimtRun RunGemm(const GemmShape& shape, SimtMemory& memory, const SimtOptions& options) {
  SimtRun run;
  GemmCheck check(memory, options, run);
  if (!check.Operand("weights", shape.weights, shape.outputs, shape.cols,
                     shape.weights_stride, true) ||
      !check.Operand("x", shape.x, shape.rows, shape.cols, shape.x_stride, true) ||
      (shape.add && !check.Operand("out", shape.out, shape.rows, shape.outputs,
                                   shape.out_stride, true)) ||
      !check.Operand("out", shape.out, shape.rows, shape.outputs, shape.out_stride,
                     false)) {
    return run;
  }
  for (int32_t row = 0; row < shape.rows; ++row) {
    const uint16_t* x = shape.x + row * shape.x_stride;
    float* out = shape.out + row * shape.out_stride;
    for (int32_t o = 0; o < shape.outputs; ++o) {
      const uint16_t* w = shape.weights + o * shape.weights_stride;
      float sum = 0.0f;
      for (int32_t k = 0; k < shape.cols; ++k) sum += F16ToF32(x[k]) * F16ToF32(w[k]);
      out[o] = shape.add ? out[o] + sum : sum;
    }
    memory.MarkWritten(out, shape.outputs * int64_t{sizeof(float)});
  }
  return run;
}

SimtDevice::SimtDevice(std::vector<EmulatedKernel> kernels, SimtDeviceOptions options)
    : options_(options) {
  for (const EmulatedKernel& kernel : kernels) {
    RENGA_CHECK(kernels_.emplace(kernel.id, kernel).second);  // Two of one id.
  }
}

SimtDevice::~SimtDevice() {
  for (const auto& [memory, bytes] : pinned_) std::free(memory);
}

DeviceInfo SimtDevice::info() const {
  return {.name = "SIMT emulator",
          .index = 0,
          .major = 8,
          .minor = 0,
          .processors = 4,
          .total_bytes = options_.total_bytes};
}

StatusOr<int64_t> SimtDevice::FreeBytes() { return options_.total_bytes - used_bytes_; }

Status SimtDevice::NotInCapture(const char* call) const {
  if (capture_ == nullptr) return OkStatus();
  return FailedPrecondition(std::string(call) + " while a stream is captured");
}

StatusOr<void*> SimtDevice::Allocate(int64_t bytes, MemoryPurpose purpose) {
  if (Status status = NotInCapture("Allocate"); !status.ok()) return status;
  if (bytes < 0) return InvalidArgument("bytes", "must not be negative");
  if (bytes > options_.total_bytes - used_bytes_) {
    return ResourceExhausted(
        std::to_string(bytes) + " bytes of device memory asked for, " +
        std::to_string(options_.total_bytes - used_bytes_) + " free");
  }
  void* memory = memory_.Allocate(bytes);
  bookings_.emplace(memory, MemoryBooking(purpose, bytes));
  used_bytes_ += bytes;
  return memory;
}

void SimtDevice::Free(void* memory) {
  if (memory == nullptr) return;
  const auto it = bookings_.find(memory);
  RENGA_CHECK(it != bookings_.end());
  bookings_.erase(it);
  used_bytes_ -= memory_.Find(memory)->bytes;
  memory_.Free(memory);
}

StatusOr<void*> SimtDevice::AllocatePinned(int64_t bytes) {
  if (Status status = NotInCapture("AllocatePinned"); !status.ok()) return status;
  if (bytes < 0) return InvalidArgument("bytes", "must not be negative");
  const size_t whole =
      (static_cast<size_t>(bytes) / kPinnedAlignment + 1) * kPinnedAlignment;
  void* memory = std::aligned_alloc(kPinnedAlignment, whole);
  RENGA_CHECK(memory != nullptr);
  std::memset(memory, 0xff, whole);
  pinned_.emplace(memory, bytes);
  return memory;
}

void SimtDevice::FreePinned(void* memory) {
  if (memory == nullptr) return;
  RENGA_CHECK(pinned_.erase(memory) == 1);
  std::free(memory);
}

StatusOr<StreamId> SimtDevice::CreateStream() { return StreamId{streams_++}; }
StatusOr<EventId> SimtDevice::CreateEvent() { return EventId{events_++}; }

Status SimtDevice::CheckStream(StreamId stream) const {
  const int32_t index = static_cast<int32_t>(stream);
  if (index < 0 || index >= streams_) return InvalidArgument("stream", "does not exist");
  if (capture_ != nullptr && captured_streams_.count(stream) == 0) {
    return FailedPrecondition("work in a stream that is not captured while another is");
  }
  return OkStatus();
}

Status SimtDevice::Record(EventId event, StreamId stream) {
  if (Status status = CheckStream(stream); !status.ok()) return status;
  if (capture_ != nullptr) captured_events_.insert(event);
  return OkStatus();
}

Status SimtDevice::Wait(StreamId stream, EventId event) {
  // A stream joins a capture by waiting for one of its events.
  if (capture_ != nullptr && captured_events_.count(event) != 0) {
    captured_streams_.insert(stream);
  }
  return CheckStream(stream);
}

Status SimtDevice::Synchronize(StreamId stream) {
  if (Status status = NotInCapture("Synchronize"); !status.ok()) return status;
  return CheckStream(stream);
}

Status SimtDevice::SynchronizeEvent(EventId) { return NotInCapture("SynchronizeEvent"); }

Status SimtDevice::CopyToDevice(void* to, const void* from, int64_t bytes,
                                StreamId stream) {
  return Submit(
      {.kind = Operation::Kind::kCopyIn, .to = to, .from = from, .bytes = bytes}, stream);
}

Status SimtDevice::CopyToHost(void* to, const void* from, int64_t bytes,
                              StreamId stream) {
  return Submit(
      {.kind = Operation::Kind::kCopyOut, .to = to, .from = from, .bytes = bytes},
      stream);
}

Status SimtDevice::CopyOnDevice(void* to, const void* from, int64_t bytes,
                                StreamId stream) {
  return Submit(
      {.kind = Operation::Kind::kCopyOnDevice, .to = to, .from = from, .bytes = bytes},
      stream);
}

Status SimtDevice::Fill(void* to, uint8_t byte, int64_t bytes, StreamId stream) {
  return Submit({.kind = Operation::Kind::kFill, .to = to, .bytes = bytes, .byte = byte},
                stream);
}

Status SimtDevice::Launch(const cuda::KernelLaunch& launch, const void* args,
                          size_t args_bytes, StreamId stream) {
  const char* bytes = static_cast<const char*>(args);
  return Submit({.kind = Operation::Kind::kLaunch,
                 .launch = launch,
                 .args = std::vector<char>(bytes, bytes + args_bytes)},
                stream);
}

Status SimtDevice::Gemm(const GemmShape& shape, StreamId stream) {
  return Submit({.kind = Operation::Kind::kGemm, .gemm = shape}, stream);
}

Status SimtDevice::Submit(Operation operation, StreamId stream) {
  if (Status status = CheckStream(stream); !status.ok()) return status;
  if (capture_ != nullptr) {
    capture_->push_back(std::move(operation));
    return OkStatus();
  }
  using Kind = Operation::Kind;
  const bool work = operation.kind == Kind::kLaunch || operation.kind == Kind::kGemm;
  if (work) counters_ = {};  // Copies leave those of the last launch.
  return Run(operation);
}

Status SimtDevice::Run(const Operation& operation) {
  using Kind = Operation::Kind;
  const Kind kind = operation.kind;
  if (kind == Kind::kLaunch) return RunLaunch(operation);
  if (kind == Kind::kGemm) {
    return Finish(RunGemm(operation.gemm, memory_, options_.simt), "Gemm");
  }
  const int64_t bytes = operation.bytes;
  if (bytes == 0) return OkStatus();
  const bool from_device = kind == Kind::kCopyOut || kind == Kind::kCopyOnDevice;
  if (from_device && !memory_.Holds(operation.from, bytes)) {
    return Internal("a copy reads outside of device memory");
  }
  if (kind != Kind::kCopyOut && !memory_.Holds(operation.to, bytes)) {
    return Internal("a copy or fill writes outside of device memory");
  }
  if (kind == Kind::kCopyIn) {
    memory_.Write(operation.to, operation.from, bytes);
  } else if (kind == Kind::kCopyOut) {
    std::memcpy(operation.to, operation.from, static_cast<size_t>(bytes));
  } else if (kind == Kind::kCopyOnDevice) {
    memory_.Copy(operation.to, operation.from, bytes);
  } else if (operation.byte == 0xff && options_.fill_poisons) {
    memory_.Poison(operation.to, bytes);
  } else {
    memory_.Fill(operation.to, operation.byte, bytes);
  }
  return OkStatus();
}

Status SimtDevice::RunLaunch(const Operation& operation) {
  const auto it = kernels_.find(operation.launch.kernel);
  if (it == kernels_.end()) {
    return Internal("no kernel " +
                    std::to_string(static_cast<int32_t>(operation.launch.kernel)));
  }
  const EmulatedKernel& kernel = it->second;
  if (operation.args.size() != static_cast<size_t>(kernel.args_bytes)) {
    return Internal(std::string(kernel.name) + " takes " +
                    std::to_string(kernel.args_bytes) + " bytes of arguments, not " +
                    std::to_string(operation.args.size()));
  }
  ++launches_;
  return Finish(RunKernel(kernel, operation.launch.shape, operation.args.data(), memory_,
                          options_.simt),
                kernel.name);
}

Status SimtDevice::Finish(SimtRun run, const char* name) {
  AddCounters(run.counters, counters_);
  if (run.ok()) return OkStatus();
  Status status = Internal(std::string(name) + ": " + run.ToString());
  std::move(run.reports.begin(), run.reports.end(), std::back_inserter(reports_));
  return status;
}

Status SimtDevice::BeginCapture(StreamId stream) {
  if (Status status = NotInCapture("BeginCapture"); !status.ok()) return status;
  if (Status status = CheckStream(stream); !status.ok()) return status;
  capture_ = std::make_unique<Tape>();
  capture_origin_ = stream;
  captured_streams_ = {stream};
  captured_events_.clear();
  return OkStatus();
}

StatusOr<GraphId> SimtDevice::EndCapture(StreamId stream) {
  if (capture_ == nullptr || stream != capture_origin_) {
    return FailedPrecondition("EndCapture of a stream that does not capture");
  }
  const GraphId graph{next_graph_++};
  graphs_.emplace(graph, std::move(*capture_));
  capture_.reset();
  return graph;
}

Status SimtDevice::Replay(GraphId graph, StreamId stream) {
  if (Status status = NotInCapture("Replay"); !status.ok()) return status;
  if (Status status = CheckStream(stream); !status.ok()) return status;
  const auto it = graphs_.find(graph);
  if (it == graphs_.end()) return InvalidArgument("graph", "does not exist");
  counters_ = {};
  for (const Operation& operation : it->second) {
    if (Status status = Run(operation); !status.ok()) return status;
  }
  return OkStatus();
}

void SimtDevice::DestroyGraph(GraphId graph) { graphs_.erase(graph); }

}  // namespace renga::test
