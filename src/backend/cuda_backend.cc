// CudaBackend: set-up, weights, pages. See cuda_backend_impl.h.

#include "backend/cuda_backend.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "backend/cuda_backend_impl.h"
#include "backend/graph_check.h"
#include "backend/kv_pages.h"
#include "backend/rope_table.h"
#include "base/status_macros.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/kv_page_format.h"

namespace renga {

namespace {

// Memory for partials of decode attention, if the context needs no more.
constexpr int64_t kPartialBytes = int64_t{64} << 20;

// Of each of the two buffers that weights travel through.
constexpr int64_t kUploadBytes = int64_t{32} << 20;

}  // namespace

StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Device> device,
                                                   const CudaBackendOptions& options) {
  RENGA_RETURN_IF_ERROR(
      CheckRange("device.threads", options.threads, 0, ThreadPool::kMaxThreads));
  RENGA_ASSIGN_OR_RETURN(const StreamId stream, device->CreateStream());
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(
      std::move(device), stream, options, ThreadPool::CountFor(options.threads)));
}

CudaBackend::CudaBackend(std::unique_ptr<Device> device, StreamId stream,
                         const CudaBackendOptions& options, int threads)
    : options_(options),
      device_(std::move(device)),
      stream_(stream),
      ops_(*BestCpuOps()),
      pool_(threads),
      weights_(*device_, MemoryPurpose::kWeights, options.arena_block_bytes),
      activations_(*device_, MemoryPurpose::kActivations, options.arena_block_bytes),
      graphs_on_(options.graphs) {}

CudaBackend::~CudaBackend() {
  // Nothing may run in memory that is given back; a lost device has nothing that runs.
  static_cast<void>(device_->Synchronize(stream_));
  if (uploader_.has_value()) static_cast<void>(uploader_->Finish());
  for (const StepGraph& graph : graphs_) device_->DestroyGraph(graph.graph);
}

BackendInfo CudaBackend::info() const {
  const DeviceInfo device = device_->info();
  // The bits of a tensor core's sum are those of its architecture.
  std::string numerics =
      std::string(options_.row_invariant ? "renga-cuda-1" : "renga-cuda-rows-1") +
      "/sm_" + std::to_string(device.major) + std::to_string(device.minor);
  if (pages_ > 0) {
    numerics += "/kv-" + std::string(KvDtypeName(geometry_.dtype)) + "." +
                std::to_string(page_layout().version);
  }
  return {.name = "cuda:" + std::to_string(device.index) + "/" + device.name,
          .numerics_id = numerics,
          .threads = pool_.threads(),
          .gpu_index = device.index,
          .gpu_pci_id = device.pci_id,
          .gpu_memory_bytes = device.total_bytes};
}

// ---- Set-up ------------------------------------------------------------------------

Status CudaBackend::Configure(const GraphShape& shape, const BackendLimits& limits) {
  if (configured_) return FailedPrecondition("the backend is already configured");
  RENGA_RETURN_IF_ERROR(CheckGraph(shape));
  RENGA_RETURN_IF_ERROR(CheckLimits(limits));
  if (!cuda::AttentionServes(cuda::PageKind::kF16, shape.head_dim)) {
    return Unimplemented("heads of " + std::to_string(shape.head_dim) +
                         " channels have no CUDA kernel")
        .WithField("head_dim");
  }
  if (shape.dim > cuda::kMostNormCols) {
    return Unimplemented("rows of " + std::to_string(shape.dim) +
                         " channels have no CUDA kernel; at most " +
                         std::to_string(cuda::kMostNormCols) + " do")
        .WithField("dim");
  }
  shape_ = shape;
  limits_ = limits;
  RENGA_RETURN_IF_ERROR(AllocateActivations());
  RENGA_RETURN_IF_ERROR(UploadRope());
  RENGA_RETURN_IF_ERROR(AllocateSampling());
  noted_.reserve(2 + 4 * static_cast<size_t>(shape.layers));
  configured_ = true;
  return OkStatus();
}

// Rows of activations, zeros at first: what is behind a row's width stays so.
template <class T>
Status CudaBackend::AllocateRows(int64_t count, T*& rows) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  RENGA_ASSIGN_OR_RETURN(void* memory, activations_.Allocate(bytes, "activations"));
  rows = static_cast<T*>(memory);
  return device_->Fill(memory, 0, bytes, stream_);
}

Status CudaBackend::AllocateActivations() {
  const int64_t rows = limits_.max_rows;
  const int64_t ffn = shape_.ffn;
  RENGA_RETURN_IF_ERROR(AllocateRows(rows * shape_.dim, x_));
  RENGA_RETURN_IF_ERROR(AllocateRows(rows * cuda::PaddedCols(shape_.dim), normed_));
  RENGA_RETURN_IF_ERROR(AllocateRows(rows * qkv_width(), qkv_));
  RENGA_RETURN_IF_ERROR(AllocateRows(rows * q_width(), q_));
  RENGA_RETURN_IF_ERROR(AllocateRows(rows * cuda::PaddedCols(q_width()), attention_));
  RENGA_RETURN_IF_ERROR(AllocateRows(rows * 2 * ffn, gate_up_));
  RENGA_RETURN_IF_ERROR(AllocateRows(rows * cuda::PaddedCols(ffn), act_));
  return AllocateRows(int64_t{limits_.max_logit_rows} * shape_.vocab, logits_);
}

Status CudaBackend::UploadRope() {
  const size_t pairs = static_cast<size_t>(shape_.rope_dims) / 2;
  const size_t count = static_cast<size_t>(shape_.context) * pairs;
  std::vector<float> cos(count);
  std::vector<float> sin(count);
  for (int64_t position = 0; position < shape_.context; ++position) {
    const size_t at = static_cast<size_t>(position) * pairs;
    RopeAngles(shape_, position, std::span(cos).subspan(at, pairs),
               std::span(sin).subspan(at, pairs));
  }
  const int64_t bytes = static_cast<int64_t>(count * sizeof(float));
  RENGA_RETURN_IF_ERROR(AllocateRows(static_cast<int64_t>(count), rope_cos_));
  RENGA_RETURN_IF_ERROR(AllocateRows(static_cast<int64_t>(count), rope_sin_));
  RENGA_RETURN_IF_ERROR(device_->CopyToDevice(rope_cos_, cos.data(), bytes, stream_));
  RENGA_RETURN_IF_ERROR(device_->CopyToDevice(rope_sin_, sin.data(), bytes, stream_));
  return device_->Synchronize(stream_);
}

StatusOr<MatrixId> CudaBackend::LoadMatrix(std::span<const TensorView> stacked) {
  if (!uploader_.has_value()) {
    RENGA_ASSIGN_OR_RETURN(uploader_, WeightUploader::Make(*device_, kUploadBytes));
  }
  RENGA_ASSIGN_OR_RETURN(DeviceMatrix matrix,
                         DeviceMatrix::Load(stacked, *uploader_, weights_, pool_));
  if (!options_.row_invariant) {
    const int64_t bytes = matrix.rows() * cuda::PaddedCols(matrix.cols()) *
                          static_cast<int64_t>(sizeof(uint16_t));
    if (bytes > dequantised_.bytes()) {
      dequantised_ = DeviceMemory();
      RENGA_ASSIGN_OR_RETURN(
          dequantised_,
          DeviceMemory::Allocate(*device_, bytes, MemoryPurpose::kActivations,
                                 "a dequantised matrix"));
    }
  }
  matrices_.push_back(std::move(matrix));
  return static_cast<MatrixId>(matrices_.size());
}

StatusOr<VectorId> CudaBackend::LoadVector(std::span<const float> values) {
  if (values.empty()) return InvalidArgument("tensor", "an empty vector");
  const int64_t bytes = static_cast<int64_t>(values.size_bytes());
  RENGA_ASSIGN_OR_RETURN(void* data, weights_.Allocate(bytes, "weights"));
  RENGA_RETURN_IF_ERROR(device_->CopyToDevice(data, values.data(), bytes, stream_));
  RENGA_RETURN_IF_ERROR(device_->Synchronize(stream_));
  vectors_.emplace_back(static_cast<const float*>(data), values.size());
  return static_cast<VectorId>(vectors_.size());
}

// ---- Pages -------------------------------------------------------------------------

Status CudaBackend::CheckKv(const KvGeometry& geometry) const {
  RENGA_RETURN_IF_ERROR(CheckKvGeometry(geometry));
  if (geometry.dtype == KvDtype::kF32) {
    return Unimplemented("a CUDA device has f16, bf16 and int8 pages, not f32")
        .WithField("kv.dtype");
  }
  const cuda::PageKind kind = geometry.dtype == KvDtype::kInt8   ? cuda::PageKind::kInt8
                              : geometry.dtype == KvDtype::kBf16 ? cuda::PageKind::kBf16
                                                                 : cuda::PageKind::kF16;
  if (cuda::AttentionServes(kind, geometry.head_dim)) return OkStatus();
  return Unimplemented("heads of " + std::to_string(geometry.head_dim) +
                       " channels have no CUDA kernel for " +
                       std::string(KvDtypeName(geometry.dtype)) + " pages")
      .WithField("kv.dtype");
}

Status CudaBackend::CreateKvPool(const KvGeometry& geometry, int64_t pages) {
  if (!configured_) return FailedPrecondition("the backend is not configured");
  if (pages_ > 0) return FailedPrecondition("there already is a KV pool");
  if (geometry.layers != shape_.layers || geometry.kv_heads != shape_.kv_heads ||
      geometry.head_dim != shape_.head_dim) {
    return InvalidArgument("kv", "the pool's geometry is not that of the model");
  }
  RENGA_RETURN_IF_ERROR(CheckKv(geometry));
  if (pages < 1 || pages > std::numeric_limits<PageId>::max()) {
    return InvalidArgument("kv.pool_bytes",
                           "a pool of " + std::to_string(pages) + " pages is impossible");
  }
  if (uploader_.has_value()) RENGA_RETURN_IF_ERROR(uploader_->Finish());
  uploader_.reset();  // All weights are there.
  geometry_ = geometry;
  where_.page_bytes = KvPageBytes(geometry);
  where_.open_bytes = KvOpenPageBytes(geometry);
  head_bytes_ = where_.page_bytes / (int64_t{geometry.layers} * geometry.kv_heads);
  form_head_bytes_ = int64_t{2} * kPageTokens * geometry.head_dim * 2;
  where_.form_layer_bytes = form_head_bytes_ * geometry.kv_heads;
  RENGA_RETURN_IF_ERROR(AllocatePool(pages));
  pages_ = pages;
  return AllocateStepTables();
}

Status CudaBackend::AllocatePool(int64_t pages) {
  if (pages > std::numeric_limits<int64_t>::max() / where_.page_bytes) {
    return InvalidArgument("kv.pool_bytes", "the pool's size overflows");
  }
  const auto allocate = [&](int64_t bytes, const char* what,
                            DeviceMemory& memory) -> Status {
    RENGA_ASSIGN_OR_RETURN(
        memory, DeviceMemory::Allocate(*device_, bytes, MemoryPurpose::kKvPool, what));
    // A page's tail that no token has reached yet is read with the rest and multiplied
    // with zero: it must not be a NaN that some other program left.
    return device_->Fill(memory.As<void>(), 0, memory.bytes(), stream_);
  };
  RENGA_RETURN_IF_ERROR(
      allocate(pages * where_.page_bytes, "a KV pool (kv.pool_bytes)", pool_memory_));
  where_.pool = pool_memory_.As<uint8_t>();
  if (!has_open_pages()) return OkStatus();
  RENGA_RETURN_IF_ERROR(allocate(int64_t{limits_.max_sequences} * where_.open_bytes,
                                 "open pages (scheduler.max_sequences)", open_memory_));
  RENGA_RETURN_IF_ERROR(
      allocate(StepTables::MaxScratchChunks(limits_) * where_.form_layer_bytes,
               "scratch chunks (scheduler.max_step_tokens)", scratch_memory_));
  where_.open = open_memory_.As<uint8_t>();
  where_.scratch = scratch_memory_.As<uint8_t>();
  return OkStatus();
}

int64_t CudaBackend::PartialSlotBytes() const {
  return shape_.kv_heads * cuda::PartialFloats(shape_.head_dim) *
         static_cast<int64_t>(sizeof(float));
}

int32_t CudaBackend::PartialSlots() const {
  const int64_t slot_bytes = PartialSlotBytes();
  const int64_t groups = cuda::DivideUp(shape_.context, cuda::kGroupPositions);
  // The longest context alone must have room: it needs its groups side by side most.
  const int64_t heads =
      cuda::DivideUp(shape_.heads / shape_.kv_heads, cuda::kDecodeTileRows);
  const int64_t most = groups * heads * limits_.max_sequences;
  return static_cast<int32_t>(
      std::min(most, std::max(groups * heads, kPartialBytes / slot_bytes)));
}

Status CudaBackend::AllocateStepTables() {
  const int32_t slots = PartialSlots();
  RENGA_ASSIGN_OR_RETURN(
      partials_,
      DeviceMemory::Allocate(*device_, slots * PartialSlotBytes(),
                             MemoryPurpose::kActivations, "partials of attention"));
  tables_.emplace(shape_, limits_, where_, has_open_pages(), slots);
  step_.emplace(StepTables::Limits{.shape = shape_,
                                   .backend = limits_,
                                   .pages = pages_,
                                   .partial_rows = limits_.max_rows,
                                   .threads = 1,
                                   .open_pages = has_open_pages()});
  RENGA_ASSIGN_OR_RETURN(staging_, PinnedMemory::Allocate(*device_, tables_->bytes()));
  RENGA_ASSIGN_OR_RETURN(void* block,
                         activations_.Allocate(tables_->bytes(), "the tables of a step"));
  step_block_ = static_cast<std::byte*>(block);
  return device_->Fill(block, 0, tables_->bytes(), stream_);
}

PageLayout CudaBackend::page_layout() const {
  switch (geometry_.dtype) {
    case KvDtype::kInt8:
      return kPageLayoutInt8;
    case KvDtype::kBf16:
      return kPageLayoutBf16;
    case KvDtype::kF16:
    case KvDtype::kF32:  // No pool of it can be made.
      break;
  }
  return kPageLayoutF16;
}

cuda::PageKind CudaBackend::page_kind() const {
  if (geometry_.dtype == KvDtype::kInt8) return cuda::PageKind::kInt8;
  return geometry_.dtype == KvDtype::kBf16 ? cuda::PageKind::kBf16 : cuda::PageKind::kF16;
}

Status CudaBackend::CheckPage(PageId page, int64_t pages) const {
  if (page >= 0 && page < pages) return OkStatus();
  return InvalidArgument("page", "page " + std::to_string(page) +
                                     " is not in a pool of " + std::to_string(pages));
}

Status CudaBackend::CheckPageBytes(PageId page, size_t bytes) const {
  RENGA_RETURN_IF_ERROR(CheckPage(page, pages_));
  if (static_cast<int64_t>(bytes) == where_.page_bytes) return OkStatus();
  return InvalidArgument("bytes", "a page has " + std::to_string(where_.page_bytes) +
                                      " bytes, not " + std::to_string(bytes));
}

Status CudaBackend::ReadPage(PageId page, std::span<std::byte> bytes) {
  RENGA_RETURN_IF_ERROR(CheckPageBytes(page, bytes.size()));
  RENGA_RETURN_IF_ERROR(device_->CopyToHost(
      bytes.data(), where_.pool + page * where_.page_bytes, where_.page_bytes, stream_));
  return device_->Synchronize(stream_);
}

Status CudaBackend::WritePage(PageId page, std::span<const std::byte> bytes) {
  RENGA_RETURN_IF_ERROR(CheckPageBytes(page, bytes.size()));
  RENGA_RETURN_IF_ERROR(device_->CopyToDevice(where_.pool + page * where_.page_bytes,
                                              bytes.data(), where_.page_bytes, stream_));
  return device_->Synchronize(stream_);
}

Status CudaBackend::CopyPageHead(PageId from, PageId to, int32_t tokens) {
  const bool open = has_open_pages();
  const int64_t pages = open ? limits_.max_sequences : pages_;
  RENGA_RETURN_IF_ERROR(CheckPage(from, pages));
  RENGA_RETURN_IF_ERROR(CheckPage(to, pages));
  if (tokens < 0 || tokens > kPageTokens) {
    return InvalidArgument("tokens",
                           "a page has 64 positions, not " + std::to_string(tokens));
  }
  if (from == to || tokens == 0) return OkStatus();
  uint8_t* base = open ? where_.open : where_.pool;
  const int64_t stride = open ? where_.open_bytes : where_.page_bytes;
  RENGA_RETURN_IF_ERROR(WaitForStaging());
  struct Item {
    cuda::CopyItem item;
    int32_t count = 1;
  };
  auto* staged = staging_.As<Item>();
  *staged = {.item = {.from = {base + from * stride, where_.form_layer_bytes},
                      .to = {base + to * stride, where_.form_layer_bytes},
                      .tokens = tokens}};
  staging_is_read_ = true;
  RENGA_RETURN_IF_ERROR(
      device_->CopyToDevice(step_block_, staged, sizeof(Item), stream_));
  auto* item = reinterpret_cast<Item*>(step_block_);
  const cuda::KvCopyArgs args{.items = &item->item,
                              .item_count = &item->count,
                              .head_bytes = form_head_bytes_,
                              .layers = shape_.layers,
                              .kv_heads = shape_.kv_heads,
                              .head_dim = shape_.head_dim};
  RENGA_RETURN_IF_ERROR(device_->Launch(cuda::KvCopyLaunch(args, 1), args, stream_));
  return WaitForStaging();
}

}  // namespace renga
