// CudaBackend: see cuda_backend.h. Set-up and pages are in cuda_backend.cc, the steps in
// cuda_steps.cc, sampling in cuda_sample.cc.
//
// A step's calls are not launched one by one: each is checked and noted as a StepOp, and
// the last one (Head, or the last layer's Mlp in a step without logits) runs them all. So
// a decode step can be one graph: when the first step with logits ends, its ops are
// captured for all bucketed batch sizes and context lengths, and a later step with the
// same ops is replayed. What changes from step to step is in device memory
// (CudaStepTables), uploaded once per step.
//
// Numerics: the residual stream, sums and logits are f32; what enters a product, queries
// and probabilities are f16 (or the pages' element). See kernels/cuda/product.h and
// attention.h for the orders of sums.
//
// Thread rule: one thread calls; the pool's workers pack and sample.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/cuda_backend.h"
#include "backend/cuda_step_tables.h"
#include "backend/device.h"
#include "backend/device_matrix.h"
#include "backend/device_memory.h"
#include "backend/step_tables.h"
#include "backend/thread_pool.h"
#include "backend/weight_uploader.h"
#include "base/aligned_buffer.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/sampling.h"
#include "kernels/ops.h"
#include "kernels/sampling.h"

namespace renga {

// One noted call of a step.
struct StepOp {
  enum class Kind : uint8_t { kEmbed, kQkv, kAttend, kOutProj, kMlp, kHead };
  Kind kind = Kind::kEmbed;
  int32_t layer = 0;
  // What it multiplies with, in order; what it does not use is 0.
  MatrixId first{};
  MatrixId second{};
  VectorId norm{};

  bool operator==(const StepOp&) const = default;
};

// How large a step may be at most: what the launches are made for.
struct StepSize {
  int32_t rows = 0;
  int32_t logit_rows = 0;
  int32_t decode_tiles = 0;
  int32_t decode_groups = 0;
  int32_t prefill_tiles = 0;
  int32_t close_items = 0;
  int32_t move_items = 0;
};

class CudaBackend final : public Backend {
 public:
  // REQUIRES: the stream is the device's.
  CudaBackend(std::unique_ptr<Device> device, StreamId stream,
              const CudaBackendOptions& options, int threads);
  ~CudaBackend() override;

  BackendInfo info() const override;

  Status Configure(const GraphShape& shape, const BackendLimits& limits) override;
  StatusOr<MatrixId> LoadMatrix(std::span<const TensorView> stacked) override;
  StatusOr<VectorId> LoadVector(std::span<const float> values) override;
  Status CheckKv(const KvGeometry& geometry) const override;
  Status CreateKvPool(const KvGeometry& geometry, int64_t pages) override;
  int64_t page_bytes() const override { return where_.page_bytes; }
  int64_t open_page_bytes() const override { return where_.open_bytes; }
  PageLayout page_layout() const override;

  Status ReadPage(PageId page, std::span<std::byte> bytes) override;
  Status WritePage(PageId page, std::span<const std::byte> bytes) override;
  Status CopyPageHead(PageId from, PageId to, int32_t tokens) override;

  Status BeginStep(const StepBatch& batch, const AttendPlan& plan) override;
  Status Embed(MatrixId table) override;
  Status NormQkvRopeAppend(int32_t layer, const LayerWeights& weights) override;
  Status Attend(int32_t layer) override;
  Status OutProjAdd(const LayerWeights& weights) override;
  Status Mlp(const LayerWeights& weights) override;
  Status Head(VectorId norm, MatrixId table) override;
  Status Sample(std::span<const SampleSpec> specs,
                std::span<SampleResult> results) override;
  StatusOr<std::span<const float>> Logits(int32_t logit_row) override;

 private:
  // A captured step, for batches up to this size.
  struct StepGraph {
    int32_t rows = 0;
    int32_t groups = 0;
    GraphId graph{};
  };

  int64_t q_width() const { return int64_t{shape_.heads} * shape_.head_dim; }
  int64_t kv_width() const { return int64_t{shape_.kv_heads} * shape_.head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  bool has_open_pages() const { return HasOpenPages(geometry_.dtype); }
  cuda::PageKind page_kind() const;

  // ---- Set-up.
  Status AllocateActivations();
  Status AllocateSampling();
  Status UploadRope();
  template <class T>
  Status AllocateRows(int64_t count, T*& rows);
  Status AllocatePool(int64_t pages);
  Status AllocateStepTables();
  int64_t PartialSlotBytes() const;
  int32_t PartialSlots() const;

  // ---- Pages.
  Status CheckPage(PageId page, int64_t pages) const;
  Status CheckPageBytes(PageId page, size_t bytes) const;

  // ---- Steps.
  Status CheckInStep() const;
  Status CheckLayer(int32_t layer) const;
  StatusOr<const DeviceMatrix*> FindMatrix(MatrixId id, int64_t rows, int64_t cols,
                                           const char* what) const;
  Status CheckVector(VectorId id, int64_t size, const char* what) const;
  // Until all work is done.
  Status Synchronize();
  // Until nothing on the device reads the staging.
  Status WaitForStaging();
  Status Note(const StepOp& op);
  // Runs what was noted, as a graph if there is one. Waits for it if nobody will ask for
  // its logits.
  Status RunNoted();
  Status Launch(const StepOp& op, const StepSize& size);
  Status LaunchEmbed(const StepOp& op, const StepSize& size);
  Status LaunchQkv(const StepOp& op, const StepSize& size);
  Status LaunchAttend(const StepOp& op, const StepSize& size);
  Status LaunchMlp(const StepOp& op, const StepSize& size);
  Status LaunchHead(const StepOp& op, const StepSize& size);
  // out (+)= x . matrix^T for the rows that `counter` says.
  struct Product {
    MatrixId matrix{};
    const uint16_t* x = nullptr;
    float* out = nullptr;
    int64_t out_stride = 0;
    const int32_t* counter = nullptr;
    int32_t most_rows = 0;
    bool add = false;
  };
  Status LaunchProduct(const Product& product);
  Status LaunchLibraryProduct(const DeviceMatrix& matrix,
                              const DeviceMatrix::Segment& segment,
                              const Product& product);
  Status LaunchNorm(VectorId norm, const int32_t* source, const int32_t* counter,
                    int32_t most_rows);
  template <class T>
  T* Table(int64_t offset) const {
    return reinterpret_cast<T*>(step_block_ + offset);
  }
  const StepCounts* counters() const { return Table<const StepCounts>(0); }
  StepSize ExactSize() const;

  // ---- Graphs.
  StepSize BucketSize(int32_t rows, int32_t groups) const;
  const StepGraph* FindGraph() const;
  // Captures the noted ops for every bucket; on a failure graphs are off.
  void CaptureAll();
  Status CaptureOne(int32_t rows, int32_t groups);

  // ---- Sampling.
  Status DrawOnDevice(std::span<const SampleSpec> specs);
  Status DrawOnHost(std::span<const SampleSpec> specs, std::span<SampleResult> results);
  Status FetchLogits(int32_t logit_row);
  std::span<const float> HostRow(int32_t logit_row) const;

  const CudaBackendOptions options_;
  const std::unique_ptr<Device> device_;
  const StreamId stream_;
  const CpuOps& ops_;  // For what is sampled on the host.
  ThreadPool pool_;
  bool configured_ = false;
  GraphShape shape_;
  BackendLimits limits_;

  DeviceArena weights_;
  DeviceArena activations_;
  std::optional<WeightUploader> uploader_;       // While weights are loaded.
  std::vector<DeviceMatrix> matrices_;           // MatrixId - 1
  std::vector<std::span<const float>> vectors_;  // VectorId - 1; on the device.

  KvGeometry geometry_;
  int64_t pages_ = 0;            // 0: there is no pool yet.
  int64_t head_bytes_ = 0;       // Of a page, one layer and KV head.
  int64_t form_head_bytes_ = 0;  // Of an f16 form.
  CudaStepTables::Places where_;
  DeviceMemory pool_memory_;
  DeviceMemory open_memory_;
  DeviceMemory scratch_memory_;
  DeviceMemory partials_;

  // Activations, on the device. f16 rows have a stride of PaddedCols, zeros at the end.
  float* x_ = nullptr;             // [max_rows][dim]
  uint16_t* normed_ = nullptr;     // f16 [max_rows][dim]
  float* qkv_ = nullptr;           // [max_rows][qkv_width]
  uint16_t* q_ = nullptr;          // element [max_rows][heads][head_dim]
  uint16_t* attention_ = nullptr;  // f16 [max_rows][q_width]
  float* gate_up_ = nullptr;       // [max_rows][2 ffn]
  uint16_t* act_ = nullptr;        // f16 [max_rows][ffn]
  float* logits_ = nullptr;        // [max_logit_rows][vocab]
  float* rope_cos_ = nullptr;      // [context][rope_dims / 2]
  float* rope_sin_ = nullptr;
  DeviceMemory dequantised_;  // Of the largest matrix, if not row_invariant.

  // One step.
  std::optional<StepTables> step_;
  std::optional<CudaStepTables> tables_;
  PinnedMemory staging_;
  bool staging_is_read_ = false;     // Maybe, by what was not waited for.
  std::byte* step_block_ = nullptr;  // On the device.
  std::vector<StepOp> noted_;
  bool in_step_ = false;
  int32_t attended_layers_ = 0;  // Of the step in progress.
  int64_t logit_rows_ = 0;       // Of the last Head.

  // Graphs of one list of ops.
  bool graphs_on_ = false;
  std::vector<StepOp> captured_;
  std::vector<StepGraph> graphs_;  // Small ones first.

  // Sampling.
  int64_t max_specs_ = 0;
  PinnedMemory draw_staging_;  // Counter, specs, and tokens on their way back.
  std::byte* draw_block_ = nullptr;
  AlignedBuffer host_logits_;         // [max_logit_rows][vocab], touched where fetched.
  std::vector<uint8_t> fetched_;      // [max_logit_rows]
  std::vector<int32_t> host_specs_;   // Of the call in progress.
  std::vector<int32_t> drawn_specs_;  // Likewise: those that the device draws.
  AlignedBuffer sampling_;            // [threads] scratches.
  AlignedBuffer edited_;              // [threads][vocab]
  std::vector<TopLogprob> top_;       // [max_specs][kMaxTopLogprobs]
  std::vector<SampleScratch> scratch_;
};

}  // namespace renga
