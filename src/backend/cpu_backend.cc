// CpuBackend: choice of the instruction set, set-up, weights, pages. See
// cpu_backend_impl.h.

#include "backend/cpu_backend.h"

#include <string>

#include "backend/cpu_backend_impl.h"
#include "backend/graph_check.h"
#include "base/status_macros.h"
#include "kernels/cpu/cpu_ops.h"

namespace renga {

namespace {

// See CpuOps::quantise_rows: a row keeps 8 bits in a block unless its largest value there
// is above twice the root mean square of those of its blocks. What is above carries most
// of the noise that 8 bits make: see bench/README.md, "Divergence from float32".
constexpr float kFastCoarse = 4.0f;

StatusOr<const CpuOps*> ChooseOps(const std::string& isa) {
  if (isa == "auto") return BestCpuOps();
  std::string known = "auto";
  bool is_known = false;
  for (const char* name : kCpuOpsName) {
    known += std::string(", ") + name;
    is_known = is_known || isa == name;
  }
  if (!is_known) {
    return InvalidArgument("device.isa", "'" + isa + "' is none of " + known);
  }
  if (const CpuOps* ops = FindCpuOps(isa.c_str())) return ops;
  return InvalidArgument("device.isa", "this CPU has no " + isa);
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options) {
  RENGA_ASSIGN_OR_RETURN(const CpuOps* ops, ChooseOps(options.isa));
  RENGA_RETURN_IF_ERROR(
      CheckRange("device.threads", options.threads, 0, ThreadPool::kMaxThreads));
  if (options.precision != "fast" && options.precision != "high") {
    return InvalidArgument("device.precision", "must be fast or high");
  }
  return std::unique_ptr<Backend>(
      std::make_unique<CpuBackend>(*ops, ThreadPool::CountFor(options.threads),
                                   options.precision == "fast" ? kFastCoarse : 0.0f));
}

BackendInfo CpuBackend::info() const {
  // All instruction sets share one id: they give the same bits.
  std::string numerics = coarse_ > 0.0f ? "renga-cpu-fast-2" : "renga-cpu-1";
  if (pages_.has_value()) {
    numerics += "/kv-" + std::string(KvDtypeName(pages_->geometry().dtype)) + "." +
                std::to_string(pages_->layout().version);
  }
  return {.name = std::string("cpu/") + ops_.name,
          .numerics_id = numerics,
          .threads = pool_.threads()};
}

Status CpuBackend::Configure(const GraphShape& shape, const BackendLimits& limits) {
  if (configured_) return FailedPrecondition("the backend is already configured");
  RENGA_RETURN_IF_ERROR(CheckGraph(shape));
  RENGA_RETURN_IF_ERROR(CheckLimits(limits));
  RENGA_ASSIGN_OR_RETURN(workspace_, Workspace::Allocate(shape, limits, pool_.threads()));
  shape_ = shape;
  limits_ = limits;
  configured_ = true;
  return OkStatus();
}

StatusOr<MatrixId> CpuBackend::LoadMatrix(std::span<const TensorView> stacked) {
  RENGA_ASSIGN_OR_RETURN(PackedMatrix matrix, PackedMatrix::Pack(stacked, pool_));
  matrices_.push_back(std::move(matrix));
  return static_cast<MatrixId>(matrices_.size());
}

StatusOr<VectorId> CpuBackend::LoadVector(std::span<const float> values) {
  if (values.empty()) return InvalidArgument("tensor", "an empty vector");
  vectors_.emplace_back(values.begin(), values.end());
  return static_cast<VectorId>(vectors_.size());
}

Status CpuBackend::CheckKv(const KvGeometry& geometry) const {
  RENGA_RETURN_IF_ERROR(CheckKvGeometry(geometry));
  if (geometry.dtype != KvDtype::kBf16) return OkStatus();
  return Unimplemented("the CPU has f16, f32 and int8 pages, not bf16")
      .WithField("kv.dtype");
}

Status CpuBackend::CreateKvPool(const KvGeometry& geometry, int64_t pages) {
  if (!configured_) return FailedPrecondition("the backend is not configured");
  if (pages_.has_value()) return FailedPrecondition("there already is a KV pool");
  if (geometry.layers != shape_.layers || geometry.kv_heads != shape_.kv_heads ||
      geometry.head_dim != shape_.head_dim) {
    return InvalidArgument("kv", "the pool's geometry is not that of the model");
  }
  RENGA_RETURN_IF_ERROR(CheckKv(geometry));
  RENGA_ASSIGN_OR_RETURN(KvPages kv_pages,
                         KvPages::Create(geometry, pages, limits_.max_sequences));
  if (kv_pages.has_open_pages()) {
    RENGA_RETURN_IF_ERROR(
        workspace_.AllocateOwnChunks(geometry, StepTables::MaxScratchChunks(limits_),
                                     StepTables::MaxOwnChunks(limits_)));
  }
  pages_ = std::move(kv_pages);
  step_.emplace(StepTables::Limits{.shape = shape_,
                                   .backend = limits_,
                                   .pages = pages,
                                   .partial_rows = workspace_.partial_rows(),
                                   .threads = pool_.threads(),
                                   .open_pages = pages_->has_open_pages()});
  return OkStatus();
}

int64_t CpuBackend::page_bytes() const {
  return pages_.has_value() ? pages_->page_bytes() : 0;
}

int64_t CpuBackend::open_page_bytes() const {
  return pages_.has_value() ? pages_->open_page_bytes() : 0;
}

PageLayout CpuBackend::page_layout() const {
  return pages_.has_value() ? pages_->layout() : PageLayout();
}

Status CpuBackend::ReadPage(PageId page, std::span<std::byte> bytes) {
  if (!pages_.has_value()) return FailedPrecondition("there is no KV pool");
  return pages_->Read(page, bytes);
}

Status CpuBackend::WritePage(PageId page, std::span<const std::byte> bytes) {
  if (!pages_.has_value()) return FailedPrecondition("there is no KV pool");
  return pages_->Write(page, bytes);
}

Status CpuBackend::CopyPageHead(PageId from, PageId to, int32_t tokens) {
  if (!pages_.has_value()) return FailedPrecondition("there is no KV pool");
  return pages_->CopyHead(from, to, tokens);
}

}  // namespace renga
