// CudaDevice: see cuda_device.h. With cuda_gemm.{h,cc} the only file outside of
// kernels/cuda that knows the CUDA runtime.
//
// An error after which the driver keeps refusing (a wild access in a kernel, a GPU that
// fell off the bus) makes the device lost: from then on every call returns that status.
//
// Kernels are loaded when the device is made, so that no launch of a capture has to.

#include "backend/cuda_device.h"

#include <cuda_runtime_api.h>

#include <array>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/cuda_gemm.h"
#include "base/memory_ledger.h"
#include "base/status_macros.h"
#include "kernels/cuda/launch.h"

namespace renga {

namespace {

std::string Describe(cudaError_t error) {
  return std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")";
}

// After these the context is gone: each later call fails.
bool LosesDevice(cudaError_t error) {
  switch (error) {
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return StatusCode::kResourceExhausted;
    case cudaErrorInvalidValue:
      return StatusCode::kInvalidArgument;
    default:
      return LosesDevice(error) ? StatusCode::kUnavailable : StatusCode::kInternal;
  }
}

// The runtime keeps the current device by thread; only this file sets it.
cudaError_t UseDevice(int32_t index) {
  thread_local int32_t current = -1;
  if (current == index) return cudaSuccess;
  const cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) current = index;
  return error;
}

// Why there is no GPU to use.
Status NoDevice(cudaError_t error) {
  if (error == cudaErrorNoDevice) return Unavailable("no CUDA device");
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return Unavailable("no CUDA driver");
  }
  if (error != cudaErrorInsufficientDriver) return Internal(Describe(error));
  const auto version = [](int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  };
  return FailedPrecondition("the CUDA driver is of version " + version(driver) +
                            ", this build needs " + version(CUDART_VERSION));
}

// Modules are loaded lazily: of all calls but a launch, asking for a kernel's attributes
// is the one that is said to load it.
cudaError_t LoadKernel(const void* entry) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, entry);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              cuda::kMaxSharedBytes);
}

// While it lives, this thread may do in a capture what is no part of it: load a kernel.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(bool capturing) : capturing_(capturing) { Exchange(); }
  ~RelaxedCapture() { Exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void Exchange() {
    if (capturing_) static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
  }

  const bool capturing_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // Or what it was before.
};

class CudaDevice final : public Device {
 public:
  using Device::Launch;

  explicit CudaDevice(int32_t index) { info_.index = index; }
  ~CudaDevice() override;
  Status Open();

  DeviceInfo info() const override { return info_; }
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
                      StreamId stream) override {
    return Copy(to, from, bytes, cudaMemcpyHostToDevice, stream);
  }
  Status CopyToHost(void* to, const void* from, int64_t bytes, StreamId stream) override {
    return Copy(to, from, bytes, cudaMemcpyDeviceToHost, stream);
  }
  Status CopyOnDevice(void* to, const void* from, int64_t bytes,
                      StreamId stream) override {
    return Copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  Status Fill(void* to, uint8_t byte, int64_t bytes, StreamId stream) override;
  Status Launch(const cuda::KernelLaunch& launch, const void* args, size_t args_bytes,
                StreamId stream) override;
  Status Gemm(const GemmShape& shape, StreamId stream) override;
  Status BeginCapture(StreamId stream) override;
  StatusOr<GraphId> EndCapture(StreamId stream) override;
  Status Replay(GraphId graph, StreamId stream) override;
  void DestroyGraph(GraphId graph) override;

 private:
  Status ReadInfo();
  Status LoadKernels();
  // Before each call: the device is not lost, and this thread's calls go to it.
  Status Ready();
  Status Check(cudaError_t error, const char* doing, const char* what = "");
  StatusOr<cudaStream_t> Find(StreamId stream) const;
  StatusOr<cudaEvent_t> Find(EventId event) const;
  Status Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind,
              StreamId stream);

  DeviceInfo info_;
  Status lost_;
  std::unordered_map<int32_t, cuda::KernelEntry> kernels_;
  std::unordered_map<void*, MemoryBooking> memory_;
  std::vector<cudaStream_t> streams_;  // StreamId - 1
  std::vector<cudaEvent_t> events_;    // EventId - 1
  bool capturing_ = false;
  int32_t next_graph_ = 1;
  std::unordered_map<int32_t, cudaGraphExec_t> graphs_;
  CudaGemm gemm_;
};

// ---- Start and end -------------------------------------------------------------------

Status CudaDevice::Open() {
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_RETURN_IF_ERROR(ReadInfo());
  RENGA_RETURN_IF_ERROR(LoadKernels());
  return gemm_.Open();  // Now, because a capture may not.
}

Status CudaDevice::ReadInfo() {
  cudaDeviceProp properties{};
  RENGA_RETURN_IF_ERROR(Check(cudaGetDeviceProperties(&properties, info_.index),
                              "reading the device's properties"));
  info_.name = properties.name;
  info_.major = properties.major;
  info_.minor = properties.minor;
  info_.processors = properties.multiProcessorCount;
  info_.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  std::array<char, 32> pci_id{};
  RENGA_RETURN_IF_ERROR(
      Check(cudaDeviceGetPCIBusId(pci_id.data(), pci_id.size(), info_.index),
            "reading the device's PCI id"));
  info_.pci_id = pci_id.data();
  if (info_.major >= 8) return OkStatus();
  return Unimplemented(info_.name + " has compute capability " +
                       std::to_string(info_.major) + "." + std::to_string(info_.minor) +
                       "; the kernels need 8.0")
      .WithField("device.name");
}

Status CudaDevice::LoadKernels() {
  for (const cuda::KernelEntries family :
       {cuda::ProductKernels(), cuda::RowKernels(), cuda::AttentionKernels(),
        cuda::SamplingKernels()}) {
    for (int32_t i = 0; i < family.count; ++i) {
      const cuda::KernelEntry& kernel = family.first[i];
      kernels_.emplace(static_cast<int32_t>(kernel.kernel), kernel);
      const cudaError_t error = LoadKernel(kernel.entry);
      if (error == cudaErrorNoKernelImageForDevice ||
          error == cudaErrorInvalidDeviceFunction) {
        static_cast<void>(cudaGetLastError());
        return Unimplemented("this build has no kernels for " + info_.name)
            .WithField("device.name");
      }
      RENGA_RETURN_IF_ERROR(Check(error, "loading ", kernel.name));
    }
  }
  return OkStatus();
}

// Results are ignored here: of a lost device there is nothing to give back, and nobody to
// tell.
CudaDevice::~CudaDevice() {
  static_cast<void>(UseDevice(info_.index));
  for (const cudaStream_t stream : streams_) {
    static_cast<void>(cudaStreamSynchronize(stream));
  }
  for (const auto& [id, graph] : graphs_) static_cast<void>(cudaGraphExecDestroy(graph));
  for (const cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
  for (const cudaStream_t stream : streams_) {
    static_cast<void>(cudaStreamDestroy(stream));
  }
  for (const auto& [memory, booking] : memory_) static_cast<void>(cudaFree(memory));
}

Status CudaDevice::Ready() {
  if (!lost_.ok()) return lost_;
  return Check(UseDevice(info_.index), "choosing the device");
}

Status CudaDevice::Check(cudaError_t error, const char* doing, const char* what) {
  if (error == cudaSuccess) return OkStatus();
  static_cast<void>(cudaGetLastError());  // Else a later call would return it.
  Status status(CodeOf(error), std::string(doing) + what + ": " + Describe(error));
  if (LosesDevice(error)) lost_ = status;
  return status;
}

StatusOr<cudaStream_t> CudaDevice::Find(StreamId stream) const {
  const auto index = static_cast<size_t>(stream) - 1;
  if (index < streams_.size()) return streams_[index];
  return InvalidArgument("stream", "there is no such stream");
}

StatusOr<cudaEvent_t> CudaDevice::Find(EventId event) const {
  const auto index = static_cast<size_t>(event) - 1;
  if (index < events_.size()) return events_[index];
  return InvalidArgument("event", "there is no such event");
}

// ---- Memory --------------------------------------------------------------------------

StatusOr<int64_t> CudaDevice::FreeBytes() {
  RENGA_RETURN_IF_ERROR(Ready());
  size_t free = 0;
  size_t total = 0;
  RENGA_RETURN_IF_ERROR(Check(cudaMemGetInfo(&free, &total), "asking for free memory"));
  return static_cast<int64_t>(free);
}

StatusOr<void*> CudaDevice::Allocate(int64_t bytes, MemoryPurpose purpose) {
  RENGA_RETURN_IF_ERROR(Ready());
  if (bytes <= 0) return InvalidArgument("bytes", "must be positive");
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    std::string message =
        std::to_string(bytes) + " bytes of device memory were asked for";
    if (const StatusOr<int64_t> free = FreeBytes(); free.ok()) {
      message += ", " + std::to_string(*free) + " are free";
    }
    return ResourceExhausted(message);
  }
  RENGA_RETURN_IF_ERROR(Check(error, "allocating device memory"));
  memory_.emplace(memory, MemoryBooking(purpose, bytes));
  return memory;
}

void CudaDevice::Free(void* memory) {
  if (memory_.erase(memory) == 0 || !Ready().ok()) return;
  static_cast<void>(Check(cudaFree(memory), "freeing device memory"));
}

StatusOr<void*> CudaDevice::AllocatePinned(int64_t bytes) {
  RENGA_RETURN_IF_ERROR(Ready());
  if (bytes <= 0) return InvalidArgument("bytes", "must be positive");
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return ResourceExhausted(std::to_string(bytes) +
                             " bytes of pinned host memory were asked for");
  }
  RENGA_RETURN_IF_ERROR(Check(error, "allocating pinned memory"));
  return memory;
}

void CudaDevice::FreePinned(void* memory) {
  if (!Ready().ok()) return;
  static_cast<void>(Check(cudaFreeHost(memory), "freeing pinned memory"));
}

// ---- Order ---------------------------------------------------------------------------

StatusOr<StreamId> CudaDevice::CreateStream() {
  RENGA_RETURN_IF_ERROR(Ready());
  cudaStream_t stream = nullptr;
  RENGA_RETURN_IF_ERROR(Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                              "creating a stream"));
  streams_.push_back(stream);
  return static_cast<StreamId>(streams_.size());
}

StatusOr<EventId> CudaDevice::CreateEvent() {
  RENGA_RETURN_IF_ERROR(Ready());
  cudaEvent_t event = nullptr;
  RENGA_RETURN_IF_ERROR(Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                              "creating an event"));
  events_.push_back(event);
  return static_cast<EventId>(events_.size());
}

Status CudaDevice::Record(EventId event, StreamId stream) {
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_ASSIGN_OR_RETURN(const cudaEvent_t which, Find(event));
  RENGA_ASSIGN_OR_RETURN(const cudaStream_t where, Find(stream));
  return Check(cudaEventRecord(which, where), "recording an event");
}

Status CudaDevice::Wait(StreamId stream, EventId event) {
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_ASSIGN_OR_RETURN(const cudaEvent_t which, Find(event));
  RENGA_ASSIGN_OR_RETURN(const cudaStream_t where, Find(stream));
  return Check(cudaStreamWaitEvent(where, which, cudaEventWaitDefault),
               "waiting for an event");
}

Status CudaDevice::Synchronize(StreamId stream) {
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_ASSIGN_OR_RETURN(const cudaStream_t where, Find(stream));
  return Check(cudaStreamSynchronize(where), "waiting for a stream");
}

Status CudaDevice::SynchronizeEvent(EventId event) {
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_ASSIGN_OR_RETURN(const cudaEvent_t which, Find(event));
  return Check(cudaEventSynchronize(which), "waiting for an event");
}

// ---- Work ----------------------------------------------------------------------------

Status CudaDevice::Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind,
                        StreamId stream) {
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_ASSIGN_OR_RETURN(const cudaStream_t where, Find(stream));
  return Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, where),
               "a copy");
}

Status CudaDevice::Fill(void* to, uint8_t byte, int64_t bytes, StreamId stream) {
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_ASSIGN_OR_RETURN(const cudaStream_t where, Find(stream));
  return Check(cudaMemsetAsync(to, byte, static_cast<size_t>(bytes), where), "a fill");
}

Status CudaDevice::Launch(const cuda::KernelLaunch& launch, const void* args,
                          size_t args_bytes, StreamId stream) {
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_ASSIGN_OR_RETURN(const cudaStream_t where, Find(stream));
  const auto found = kernels_.find(static_cast<int32_t>(launch.kernel));
  if (found == kernels_.end()) {
    return InvalidArgument(
        "kernel",
        "there is no kernel " + std::to_string(static_cast<int32_t>(launch.kernel)));
  }
  const cuda::KernelEntry& kernel = found->second;
  const cuda::LaunchShape& shape = launch.shape;
  if (args_bytes != static_cast<size_t>(kernel.args_bytes) ||
      shape.threads != kernel.threads) {
    return InvalidArgument(
        "kernel", std::string(kernel.name) + " has " + std::to_string(kernel.threads) +
                      " threads and " + std::to_string(kernel.args_bytes) +
                      " bytes of arguments, not " + std::to_string(shape.threads) +
                      " and " + std::to_string(args_bytes));
  }
  const dim3 grid(static_cast<unsigned>(shape.grid_x),
                  static_cast<unsigned>(shape.grid_y),
                  static_cast<unsigned>(shape.grid_z));
  void* arguments[] = {const_cast<void*>(args)};
  return Check(
      cudaLaunchKernel(kernel.entry, grid, dim3(static_cast<unsigned>(shape.threads)),
                       arguments, static_cast<size_t>(shape.shared_bytes), where),
      "launch of ", kernel.name);
}

Status CudaDevice::Gemm(const GemmShape& shape, StreamId stream) {
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_ASSIGN_OR_RETURN(const cudaStream_t where, Find(stream));
  const RelaxedCapture relaxed(capturing_);
  Status status = gemm_.Run(shape, where);
  if (status.ok()) return status;
  // What cuBLASLt calls a failure to run, the runtime may have a name for.
  RENGA_RETURN_IF_ERROR(Check(cudaPeekAtLastError(), "a product of cuBLASLt"));
  return status;
}

// ---- Graphs --------------------------------------------------------------------------

Status CudaDevice::BeginCapture(StreamId stream) {
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_ASSIGN_OR_RETURN(const cudaStream_t where, Find(stream));
  RENGA_RETURN_IF_ERROR(
      Check(cudaStreamBeginCapture(where, cudaStreamCaptureModeThreadLocal),
            "the start of a capture"));
  capturing_ = true;
  return OkStatus();
}

StatusOr<GraphId> CudaDevice::EndCapture(StreamId stream) {
  capturing_ = false;
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_ASSIGN_OR_RETURN(const cudaStream_t where, Find(stream));
  cudaGraph_t graph = nullptr;
  RENGA_RETURN_IF_ERROR(
      Check(cudaStreamEndCapture(where, &graph), "the end of a capture"));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  RENGA_RETURN_IF_ERROR(Check(error, "making a graph"));
  graphs_.emplace(next_graph_, exec);
  const auto id = static_cast<GraphId>(next_graph_++);
  // Else the first replay would wait for it.
  if (Status status = Check(cudaGraphUpload(exec, where), "uploading a graph");
      !status.ok()) {
    DestroyGraph(id);
    return status;
  }
  return id;
}

Status CudaDevice::Replay(GraphId graph, StreamId stream) {
  RENGA_RETURN_IF_ERROR(Ready());
  RENGA_ASSIGN_OR_RETURN(const cudaStream_t where, Find(stream));
  const auto found = graphs_.find(static_cast<int32_t>(graph));
  if (found == graphs_.end()) return InvalidArgument("graph", "there is no such graph");
  return Check(cudaGraphLaunch(found->second, where), "replaying a graph");
}

void CudaDevice::DestroyGraph(GraphId graph) {
  const auto found = graphs_.find(static_cast<int32_t>(graph));
  if (found == graphs_.end()) return;
  static_cast<void>(cudaGraphExecDestroy(found->second));
  graphs_.erase(found);
}

}  // namespace

int32_t CudaDeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int32_t index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return NoDevice(error);
  if (count == 0) return NoDevice(cudaErrorNoDevice);
  if (index < 0 || index >= count) {
    return InvalidArgument("device.name", "there is no GPU " + std::to_string(index) +
                                              "; this machine has " +
                                              std::to_string(count));
  }
  auto device = std::make_unique<CudaDevice>(index);
  const Status status = device->Open();
  // There is one, so it is not absent, whatever is wrong with it.
  if (status.code() == StatusCode::kUnavailable) return Internal(status.message());
  RENGA_RETURN_IF_ERROR(status);
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace renga
