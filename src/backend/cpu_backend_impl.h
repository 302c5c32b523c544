// CpuBackend: see cpu_backend.h. Set-up and pages are in cpu_backend.cc, the fused steps
// in cpu_steps.cc, of these what writes and reads KV pages in cpu_attend.cc.
//
// A step is a chain of parallel regions. Work is split by weight panels (products), rows
// (norms, rotation) or plan items (attention), never along k, so that no result depends
// on the number of threads.
//
// Thread rule: one thread calls; the pool's workers run inside regions only.

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu_backend.h"
#include "backend/kv_pages.h"
#include "backend/packed_matrix.h"
#include "backend/step_tables.h"
#include "backend/thread_pool.h"
#include "backend/workspace.h"
#include "kernels/ops.h"

namespace renga {

class CpuBackend final : public Backend {
 public:
  // `coarse`: of CpuOps::quantise_rows.
  CpuBackend(const CpuOps& ops, int threads, float coarse)
      : ops_(ops), coarse_(coarse), pool_(threads) {}

  BackendInfo info() const override;

  Status Configure(const GraphShape& shape, const BackendLimits& limits) override;
  StatusOr<MatrixId> LoadMatrix(std::span<const TensorView> stacked) override;
  StatusOr<VectorId> LoadVector(std::span<const float> values) override;
  Status CheckKv(const KvGeometry& geometry) const override;
  Status CreateKvPool(const KvGeometry& geometry, int64_t pages) override;
  int64_t page_bytes() const override;
  int64_t open_page_bytes() const override;
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
  // Rows of activations on their way into a product, in the forms its types need.
  struct Input {
    const float* x = nullptr;  // [rows, cols]
    QuantRows codes;
    int64_t rows = 0;
  };
  struct Output {
    float* data = nullptr;  // [rows, stride]
    int64_t stride = 0;
    bool add = false;
  };

  int64_t q_width() const { return int64_t{shape_.heads} * shape_.head_dim; }
  int64_t kv_width() const { return int64_t{shape_.kv_heads} * shape_.head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }

  Status CheckInStep() const;
  Status CheckLayer(int32_t layer) const;
  // The matrix, if it is loaded and has this shape.
  StatusOr<const PackedMatrix*> FindMatrix(MatrixId id, int64_t rows, int64_t cols,
                                           const char* what) const;
  StatusOr<const float*> FindVector(VectorId id, int64_t size, const char* what) const;

  // RmsNorm of x[source_row(i)] for i < rows, into `normed`, and its codes if `w` wants.
  template <class SourceRow>
  Input NormRows(const PackedMatrix& w, const float* weight, int64_t rows,
                 const SourceRow& source_row);
  // `rows` rows of `cols` values as they are, and their codes if `w` wants.
  Input CodeRows(const PackedMatrix& w, const float* x, int64_t rows,
                 const QuantRows& codes);
  // The codes of rows [first, end) of x, of one tile.
  void CodeTile(const float* x, int64_t cols, int64_t first, int64_t end,
                const QuantRows& codes) const;
  // Calls function(first, end) for tiles of 8 rows.
  template <class Function>
  void ForTiles(int64_t rows, const Function& function);
  // Calls function(row) for all rows, 8 to a piece, so that a tile has one writer.
  template <class Function>
  void ForRows(int64_t rows, const Function& function);

  // out (+)= in . w^T
  void Multiply(const PackedMatrix& w, const Input& in, const Output& out);
  void MultiplyPanels(const PackedMatrix& w, const Input& in, const Output& out,
                      int64_t first_panel, int64_t end_panel);
  // Calls the product of the segment's type.
  void Matmul(WeightType type, const MatmulArgs& args) const;

  void RotateAndAppend(int32_t layer, int64_t row);
  void AppendRow(int32_t layer, int64_t row, const float* k, const float* v);
  // The f16 form of a chunk's K in one layer and KV head, V behind it.
  uint8_t* OwnHead(const StepTables::OwnChunk& chunk, int32_t layer, int32_t kv_head);
  uint8_t* PageHead(PageId page, int32_t layer, int32_t kv_head);
  // Calls function(chunk, KV head) for all KV heads of these of the step's own chunks.
  template <class Function>
  void ForChunkHeads(const std::vector<int32_t>& chunks, const Function& function);
  void CloseChunks(int32_t layer);       // Those that became whole, into their pages.
  void MoveChunks(int32_t layer);        // From scratch to the open pages.
  void PointToOwnChunks(int32_t layer);  // For AttendArgs::own.
  void AttendOne(int32_t layer, const AttendItem& item);
  void MergeOne(const StepTables::Merge& merge);
  // The columns of one panel: gate, up, and their product, for all rows.
  void GateUpPanel(const PackedMatrix& gate_up, const Input& in, int64_t panel);
  void GateUpStrip(const PackedMatrix& gate_up, const Input& in, int64_t panel,
                   int64_t first_row, float* gate, float* up);

  std::span<const float> LogitRow(int32_t logit_row);  // [vocab], of the last Head.
  SampleResult SampleOne(const SampleSpec& spec, int worker, std::span<TopLogprob> top);

  const CpuOps& ops_;
  const float coarse_;  // Of CpuOps::quantise_rows.
  ThreadPool pool_;
  bool configured_ = false;
  GraphShape shape_;
  BackendLimits limits_;
  std::vector<PackedMatrix> matrices_;       // MatrixId - 1
  std::vector<std::vector<float>> vectors_;  // VectorId - 1
  Workspace workspace_;
  std::optional<KvPages> pages_;
  std::optional<StepTables> step_;
  bool in_step_ = false;
  int64_t logit_rows_ = 0;  // Of the last Head.
};

}  // namespace renga
