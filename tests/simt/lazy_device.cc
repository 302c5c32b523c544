// LazyDevice: the calls of Device. How what they queue runs is in lazy_run.cc, captures
// are in lazy_capture.cc.

#include "tests/simt/lazy_device.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace renga::test {

namespace {

constexpr size_t kMostReports = 100;

}  // namespace

LazyDevice::LazyDevice(std::vector<EmulatedKernel> kernels,
                       const LazyDeviceOptions& options)
    : options_(options), random_(options.seed) {
  for (const EmulatedKernel& kernel : kernels) {
    RENGA_CHECK(kernels_.emplace(kernel.id, kernel).second);  // Two of one id.
  }
  host_.Set(kHostLine, 1);
}

LazyDevice::~LazyDevice() = default;

// ---- What tests ask
// --------------------------------------------------------------------

std::vector<std::string> LazyDevice::reports() const {
  std::vector<std::string> all = reports_;
  all.insert(all.end(), history_.races().begin(), history_.races().end());
  return all;
}

void LazyDevice::Report(std::string text) {
  const bool known = std::find(reports_.begin(), reports_.end(), text) != reports_.end();
  if (!known && reports_.size() < kMostReports) reports_.push_back(std::move(text));
}

Moment LazyDevice::HostMoment() {
  host_.Set(kHostLine, HostNow() + 1);
  return {.line = kHostLine, .number = HostNow(), .after = host_};
}

void LazyDevice::NoteHost(const char* who, std::vector<MemoryRange> reads,
                          std::vector<MemoryRange> writes) {
  history_.Add({.when = HostMoment(),
                .who = who,
                .reads = std::move(reads),
                .writes = std::move(writes)});
}

void LazyDevice::NoteHostRead(const void* at, int64_t bytes) {
  NoteHost("a read of the host", {{static_cast<const char*>(at), bytes}}, {});
}

void LazyDevice::NoteHostWrite(const void* at, int64_t bytes) {
  NoteHost("a write of the host", {}, {{static_cast<const char*>(at), bytes}});
}

void LazyDevice::FailAt(DeviceCall call, int64_t n, Status status) {
  RENGA_CHECK(n > 0 && !status.ok());
  faults_[static_cast<size_t>(call)] = {.calls_left = n, .status = std::move(status)};
}

// ---- What every call begins with
// -------------------------------------------------------

Status LazyDevice::Enter(DeviceCall call) {
  if (!lost_.ok()) return lost_;
  std::optional<Fault>& fault = faults_[static_cast<size_t>(call)];
  if (fault.has_value() && --fault->calls_left == 0) {
    const Status status = fault->status;
    fault.reset();
    if (status.code() == StatusCode::kUnavailable) {
      lost_ = status;
      pending_.clear();  // Nothing runs any more.
    }
    if (capture_ != nullptr) static_cast<void>(Kill(status.message()));
    return status;
  }
  if (capture_ == nullptr) return OkStatus();
  switch (call) {
    case DeviceCall::kRecord:
    case DeviceCall::kWait:
    case DeviceCall::kCopy:
    case DeviceCall::kFill:
    case DeviceCall::kLaunch:
    case DeviceCall::kGemm:
    case DeviceCall::kEndCapture:
      return OkStatus();
    default:
      return Kill("a call that waits, allocates or replays while a stream is captured");
  }
}

Status LazyDevice::CheckStream(StreamId stream) {
  if (static_cast<size_t>(stream) - 1 >= streams_.size()) {
    return InvalidArgument("stream", "there is no such stream");
  }
  if (capture_ != nullptr && capture_->branches.count(stream) == 0) {
    return Kill("work in a stream that is not captured while another is");
  }
  return OkStatus();
}

Status LazyDevice::CheckEvent(EventId event) const {
  if (static_cast<size_t>(event) - 1 < events_.size()) return OkStatus();
  return InvalidArgument("event", "there is no such event");
}

Status LazyDevice::NotOfCapture(EventId event) {
  if (captured_events_.count(event) == 0) return OkStatus();
  Report("a wait for an event that was last recorded in a capture");
  return FailedPrecondition("the event was last recorded in a capture");
}

// Pageable memory is nobody's business; pinned memory has to be whole and alive.
Status LazyDevice::CheckOnHost(const void* at, int64_t bytes) {
  std::string wrong = memory_.CheckPinned(at, bytes);
  if (wrong.empty()) return OkStatus();
  Report("a copy " + wrong);
  return InvalidArgument("memory", "a copy " + wrong);
}

Status LazyDevice::CheckOnDevice(const void* at, int64_t bytes, const char* what) {
  if (bytes < 0) return InvalidArgument("bytes", "must not be negative");
  if (memory_.device().Holds(at, bytes)) return OkStatus();
  Report(std::string(what) + " outside of the device's memory");
  return InvalidArgument("memory", std::string(what) + " outside of the device's memory");
}

// ---- Memory
// ----------------------------------------------------------------------------

DeviceInfo LazyDevice::info() const {
  return {.name = "lazy SIMT emulator",
          .index = 0,
          .major = 8,
          .minor = 0,
          .processors = 4,
          .total_bytes = options_.total_bytes};
}

StatusOr<int64_t> LazyDevice::FreeBytes() {
  if (!lost_.ok()) return lost_;
  return options_.total_bytes - memory_.used_bytes();
}

StatusOr<void*> LazyDevice::Allocate(int64_t bytes, MemoryPurpose purpose) {
  if (Status status = Enter(DeviceCall::kAllocate); !status.ok()) return status;
  if (bytes <= 0) return InvalidArgument("bytes", "must be positive");
  const int64_t free = options_.total_bytes - memory_.used_bytes();
  if (bytes > free) {
    return ResourceExhausted(std::to_string(bytes) +
                             " bytes of device memory were asked for, " +
                             std::to_string(free) + " are free");
  }
  return memory_.AllocateDevice(bytes, purpose, HostMoment().number);
}

void LazyDevice::Free(void* memory) {
  if (memory == nullptr) return;
  if (capture_ != nullptr) static_cast<void>(Kill("Free while a stream is captured"));
  const Moment when = HostMoment();
  const MemoryRange range = memory_.FreeDevice(memory, when.number);
  if (range.begin == nullptr) {
    Report("Free of what is no allocation of the device, or is no more");
    return;
  }
  if (!lost_.ok()) return;  // Nothing runs there.
  history_.Add({.when = when, .who = "a Free", .reads = {}, .writes = {range}});
}

StatusOr<void*> LazyDevice::AllocatePinned(int64_t bytes) {
  if (Status status = Enter(DeviceCall::kAllocatePinned); !status.ok()) return status;
  if (bytes <= 0) return InvalidArgument("bytes", "must be positive");
  return memory_.AllocatePinned(bytes, HostMoment().number);
}

void LazyDevice::FreePinned(void* memory) {
  if (memory == nullptr) return;
  if (capture_ != nullptr) {
    static_cast<void>(Kill("FreePinned while a stream is captured"));
  }
  const Moment when = HostMoment();
  const MemoryRange range = memory_.FreePinned(memory, when.number);
  if (range.begin == nullptr) {
    Report("FreePinned of what is no pinned memory, or is no more");
    return;
  }
  if (!lost_.ok()) return;
  history_.Add({.when = when, .who = "a FreePinned", .reads = {}, .writes = {range}});
}

// ---- Order
// -----------------------------------------------------------------------------

StatusOr<StreamId> LazyDevice::CreateStream() {
  if (Status status = Enter(DeviceCall::kCreateStream); !status.ok()) return status;
  streams_.push_back({.line = MakeLine()});
  return static_cast<StreamId>(streams_.size());
}

StatusOr<EventId> LazyDevice::CreateEvent() {
  if (Status status = Enter(DeviceCall::kCreateEvent); !status.ok()) return status;
  events_.emplace_back();
  return static_cast<EventId>(events_.size());
}

Status LazyDevice::Record(EventId event, StreamId stream) {
  if (Status status = Enter(DeviceCall::kRecord); !status.ok()) return status;
  if (Status status = CheckEvent(event); !status.ok()) return status;
  if (Status status = CheckStream(stream); !status.ok()) return status;
  if (capture_ != nullptr) return RecordInCapture(event, stream);
  captured_events_.erase(event);
  events_[static_cast<size_t>(event) - 1] = streams_[static_cast<size_t>(stream) - 1].tip;
  return OkStatus();
}

Status LazyDevice::Wait(StreamId stream, EventId event) {
  if (Status status = Enter(DeviceCall::kWait); !status.ok()) return status;
  if (Status status = CheckEvent(event); !status.ok()) return status;
  if (capture_ != nullptr) return WaitInCapture(stream, event);
  if (Status status = CheckStream(stream); !status.ok()) return status;
  if (Status status = NotOfCapture(event); !status.ok()) return status;
  streams_[static_cast<size_t>(stream) - 1].tip.Join(
      events_[static_cast<size_t>(event) - 1]);
  return OkStatus();
}

Status LazyDevice::Synchronize(StreamId stream) {
  if (Status status = Enter(DeviceCall::kSynchronize); !status.ok()) return status;
  if (Status status = CheckStream(stream); !status.ok()) return status;
  return WaitFor(streams_[static_cast<size_t>(stream) - 1].tip);
}

Status LazyDevice::SynchronizeEvent(EventId event) {
  if (Status status = Enter(DeviceCall::kSynchronize); !status.ok()) return status;
  if (Status status = CheckEvent(event); !status.ok()) return status;
  if (Status status = NotOfCapture(event); !status.ok()) return status;
  return WaitFor(events_[static_cast<size_t>(event) - 1]);
}

// ---- Work
// ------------------------------------------------------------------------------

Status LazyDevice::CopyToDevice(void* to, const void* from, int64_t bytes,
                                StreamId stream) {
  if (Status status = Enter(DeviceCall::kCopy); !status.ok()) return status;
  if (Status status = CheckOnDevice(to, bytes, "a copy to the device"); !status.ok()) {
    return status;
  }
  if (Status status = CheckOnHost(from, bytes); !status.ok()) return status;
  Operation operation{
      .kind = Operation::Kind::kCopyIn, .to = to, .from = from, .bytes = bytes};
  if (!memory_.IsPinned(from, bytes)) {
    if (capture_ != nullptr) return Kill("a copy from pageable memory in a capture");
    const char* source = static_cast<const char*>(from);
    operation.staged.assign(source, source + bytes);
  }
  return Submit(std::move(operation), stream);
}

Status LazyDevice::CopyToHost(void* to, const void* from, int64_t bytes,
                              StreamId stream) {
  if (Status status = Enter(DeviceCall::kCopy); !status.ok()) return status;
  if (Status status = CheckOnDevice(from, bytes, "a copy to the host"); !status.ok()) {
    return status;
  }
  if (Status status = CheckOnHost(to, bytes); !status.ok()) return status;
  const bool pinned = memory_.IsPinned(to, bytes);
  if (!pinned && capture_ != nullptr) {
    return Kill("a copy to pageable memory in a capture");
  }
  if (Status status = Submit(
          {.kind = Operation::Kind::kCopyOut, .to = to, .from = from, .bytes = bytes},
          stream);
      !status.ok() || pinned) {
    return status;
  }
  // The call returns when the copy has been made. Nothing else is known to have run then.
  RunUntil(streams_[static_cast<size_t>(stream) - 1].tip.nodes);
  return lost_;
}

Status LazyDevice::CopyOnDevice(void* to, const void* from, int64_t bytes,
                                StreamId stream) {
  if (Status status = Enter(DeviceCall::kCopy); !status.ok()) return status;
  for (const void* at : {static_cast<const void*>(to), from}) {
    if (Status status = CheckOnDevice(at, bytes, "a copy on the device"); !status.ok()) {
      return status;
    }
  }
  return Submit(
      {.kind = Operation::Kind::kCopyOnDevice, .to = to, .from = from, .bytes = bytes},
      stream);
}

Status LazyDevice::Fill(void* to, uint8_t byte, int64_t bytes, StreamId stream) {
  if (Status status = Enter(DeviceCall::kFill); !status.ok()) return status;
  if (Status status = CheckOnDevice(to, bytes, "a fill"); !status.ok()) return status;
  return Submit({.kind = Operation::Kind::kFill, .to = to, .bytes = bytes, .byte = byte},
                stream);
}

Status LazyDevice::Launch(const cuda::KernelLaunch& launch, const void* args,
                          size_t args_bytes, StreamId stream) {
  if (Status status = Enter(DeviceCall::kLaunch); !status.ok()) return status;
  const auto found = kernels_.find(launch.kernel);
  if (found == kernels_.end()) {
    return InvalidArgument(
        "kernel",
        "there is no kernel " + std::to_string(static_cast<int32_t>(launch.kernel)));
  }
  const EmulatedKernel& kernel = found->second;
  if (args_bytes != static_cast<size_t>(kernel.args_bytes)) {
    return InvalidArgument("kernel", std::string(kernel.name) + " takes " +
                                         std::to_string(kernel.args_bytes) +
                                         " bytes of arguments, not " +
                                         std::to_string(args_bytes));
  }
  if (std::string wrong = ValidateLaunch(kernel, launch.shape); !wrong.empty()) {
    Report(std::string(kernel.name) + ": " + wrong);
    return InvalidArgument("kernel", std::string(kernel.name) + ": " + wrong);
  }
  const char* bytes = static_cast<const char*>(args);
  return Submit({.kind = Operation::Kind::kLaunch,
                 .kernel = &kernel,
                 .shape = launch.shape,
                 .args = std::vector<char>(bytes, bytes + args_bytes)},
                stream);
}

Status LazyDevice::Gemm(const GemmShape& shape, StreamId stream) {
  if (Status status = Enter(DeviceCall::kGemm); !status.ok()) return status;
  return Submit({.kind = Operation::Kind::kGemm, .gemm = shape}, stream);
}

Status LazyDevice::Submit(Operation operation, StreamId stream) {
  if (Status status = CheckStream(stream); !status.ok()) return status;
  if (capture_ != nullptr) return SubmitToCapture(std::move(operation), stream);
  Stream& where = streams_[static_cast<size_t>(stream) - 1];
  const NodeId id = Enqueue(std::move(operation), where.line, where.tip);
  where.tip = {.after = pending_.at(id).when.after, .nodes = {id}};
  return Settle({id});
}

}  // namespace renga::test
