// The fused steps of the CPU backend; what reads and writes KV pages is in cpu_attend.cc.
// See cpu_backend_impl.h.

#include <algorithm>
#include <string>

#include "backend/cpu_backend_impl.h"
#include "backend/loaded_weights.h"
#include "backend/rope_table.h"
#include "backend/sample_row.h"
#include "backend/sample_spec.h"
#include "base/status_macros.h"
#include "kernels/cpu/cpu_ops.h"

namespace renga {

namespace {

// Pieces per worker and region: enough for stealing to level the load, few enough that a
// piece is long against its compare-and-swap.
constexpr int64_t kPiecesPerWorker = 16;

// Rows of gate and up that are multiplied before SwiGLU takes them from the first-level
// cache: whole tiles, and enough of them for products that work on many rows at a time.
constexpr int64_t kStripRows = 64;

}  // namespace

// ---- Checks ------------------------------------------------------------------------

Status CpuBackend::CheckInStep() const {
  return in_step_ ? OkStatus() : FailedPrecondition("no step has begun");
}

Status CpuBackend::CheckLayer(int32_t layer) const {
  if (layer >= 0 && layer < shape_.layers) return CheckInStep();
  return InvalidArgument("layer", std::to_string(layer) + " is not in a model of " +
                                      std::to_string(shape_.layers) + " layers");
}

StatusOr<const PackedMatrix*> CpuBackend::FindMatrix(MatrixId id, int64_t rows,
                                                     int64_t cols,
                                                     const char* what) const {
  return FindLoaded(matrices_, id, rows, cols, what);
}

StatusOr<const float*> CpuBackend::FindVector(VectorId id, int64_t size,
                                              const char* what) const {
  return FindLoaded(vectors_, id, size, what);
}

// ---- Products ----------------------------------------------------------------------

template <class Function>
void CpuBackend::ForTiles(int64_t rows, const Function& function) {
  pool_.Run((rows + kTileRows - 1) / kTileRows, [&](int64_t tile, int) {
    function(tile * kTileRows, std::min(rows, (tile + 1) * kTileRows));
  });
}

template <class Function>
void CpuBackend::ForRows(int64_t rows, const Function& function) {
  ForTiles(rows, [&](int64_t first, int64_t end) {
    for (int64_t row = first; row < end; ++row) function(row);
  });
}

void CpuBackend::CodeTile(const float* x, int64_t cols, int64_t first, int64_t end,
                          const QuantRows& codes) const {
  ops_.quantise_rows({.x = x + first * cols,
                      .x_stride = cols,
                      .rows = end - first,
                      .cols = cols,
                      .coarse = coarse_,
                      .out = TileOf(codes, cols, first / kTileRows)});
}

template <class SourceRow>
CpuBackend::Input CpuBackend::NormRows(const PackedMatrix& w, const float* weight,
                                       int64_t rows, const SourceRow& source_row) {
  const Input in{
      .x = workspace_.normed().data(), .codes = workspace_.input_codes(), .rows = rows};
  ForTiles(rows, [&](int64_t first, int64_t end) {
    for (int64_t row = first; row < end; ++row) {
      const float* x = workspace_.x().data() + source_row(row) * shape_.dim;
      float* out = workspace_.normed().data() + row * shape_.dim;
      ops_.rms_norm(x, weight, shape_.dim, shape_.norm_eps, out);
    }
    if (w.any_quantised()) CodeTile(in.x, shape_.dim, first, end, in.codes);
  });
  return in;
}

CpuBackend::Input CpuBackend::CodeRows(const PackedMatrix& w, const float* x,
                                       int64_t rows, const QuantRows& codes) {
  const Input in{.x = x, .codes = codes, .rows = rows};
  if (!w.any_quantised()) return in;
  ForTiles(rows, [&](int64_t first, int64_t end) {
    CodeTile(x, w.cols(), first, end, in.codes);
  });
  return in;
}

void CpuBackend::Matmul(WeightType type, const MatmulArgs& args) const {
  switch (type) {
    case WeightType::kBf16:  // Its panels are those of F32.
    case WeightType::kF32:
      return ops_.matmul_f32(args);
    case WeightType::kF16:
      return ops_.matmul_f16(args);
    case WeightType::kQ8_0:
      return ops_.matmul_q8_0(args);
    case WeightType::kQ4_0:  // Its panels are those of Q4_1.
    case WeightType::kQ4_1:
      return ops_.matmul_q4_1(args);
    case WeightType::kQ4_K:
      return ops_.matmul_q4_k(args);
  }
}

void CpuBackend::Multiply(const PackedMatrix& w, const Input& in, const Output& out) {
  const int64_t piece_panels =
      std::max<int64_t>(1, w.panels() / (pool_.threads() * kPiecesPerWorker));
  const int64_t pieces = (w.panels() + piece_panels - 1) / piece_panels;
  pool_.Run(pieces, [&](int64_t piece, int) {
    const int64_t end = std::min(w.panels(), (piece + 1) * piece_panels);
    MultiplyPanels(w, in, out, piece * piece_panels, end);
  });
}

void CpuBackend::MultiplyPanels(const PackedMatrix& w, const Input& in, const Output& out,
                                int64_t first_panel, int64_t end_panel) {
  for (const PackedMatrix::Segment& segment : w.segments()) {
    const int64_t first =
        std::max(first_panel, segment.first_panel) - segment.first_panel;
    const int64_t end =
        std::min(end_panel, segment.first_panel + segment.panels) - segment.first_panel;
    if (first >= end) continue;
    Matmul(segment.type,
           {.panels = segment.data + first * segment.panel_bytes,
            .panel_count = end - first,
            .cols = w.cols(),
            .outputs = std::min(segment.rows, end * kPanelRows) - first * kPanelRows,
            .quant = in.codes,
            .x = in.x,
            .x_stride = w.cols(),
            .rows = in.rows,
            .out = out.data + segment.first_row + first * kPanelRows,
            .out_stride = out.stride,
            .add = out.add});
  }
}

// ---- Steps -------------------------------------------------------------------------

Status CpuBackend::BeginStep(const StepBatch& batch, const AttendPlan& plan) {
  in_step_ = false;
  logit_rows_ = 0;
  if (!step_.has_value()) return FailedPrecondition("there is no KV pool");
  RENGA_RETURN_IF_ERROR(step_->Build(batch, plan));
  in_step_ = true;
  pool_.BeginStretch();
  return OkStatus();
}

Status CpuBackend::Embed(MatrixId table) {
  RENGA_RETURN_IF_ERROR(CheckInStep());
  RENGA_ASSIGN_OR_RETURN(const PackedMatrix* w,
                         FindMatrix(table, shape_.vocab, shape_.dim, "embedding"));
  ForRows(step_->rows(), [&](int64_t row) {
    w->UnpackRow(step_->batch().tokens[static_cast<size_t>(row)],
                 workspace_.x().data() + row * shape_.dim);
  });
  return OkStatus();
}

Status CpuBackend::NormQkvRopeAppend(int32_t layer, const LayerWeights& weights) {
  RENGA_RETURN_IF_ERROR(CheckLayer(layer));
  RENGA_ASSIGN_OR_RETURN(const PackedMatrix* w,
                         FindMatrix(weights.qkv, qkv_width(), shape_.dim, "qkv"));
  RENGA_ASSIGN_OR_RETURN(const float* norm, FindVector(weights.attention_norm, shape_.dim,
                                                       "attention_norm"));
  const int64_t rows = step_->rows();
  const Input in = NormRows(*w, norm, rows, [](int64_t row) { return row; });
  Multiply(*w, in, {.data = workspace_.qkv().data(), .stride = qkv_width()});
  ForRows(rows, [&](int64_t row) { RotateAndAppend(layer, row); });
  CloseChunks(layer);
  return OkStatus();
}

void CpuBackend::RotateAndAppend(int32_t layer, int64_t row) {
  const int64_t position = step_->position_of(row);
  float* q = workspace_.qkv().data() + row * qkv_width();
  float* k = q + q_width();
  const float* v = k + kv_width();
  RopeArgs rope{.x = q,
                .heads = shape_.heads,
                .head_dim = shape_.head_dim,
                .rope_dims = shape_.rope_dims,
                .halves = shape_.rope_style == RopeStyle::kHalves,
                .cos = workspace_.rope_cos(position),
                .sin = workspace_.rope_sin(position),
                .scale = QueryScale(shape_.head_dim)};
  ops_.rope(rope);
  rope.x = k;
  rope.heads = shape_.kv_heads;
  rope.scale = 1.0f;
  ops_.rope(rope);
  AppendRow(layer, row, k, v);
}

Status CpuBackend::OutProjAdd(const LayerWeights& weights) {
  RENGA_RETURN_IF_ERROR(CheckInStep());
  RENGA_ASSIGN_OR_RETURN(
      const PackedMatrix* w,
      FindMatrix(weights.attention_out, shape_.dim, q_width(), "attention_out"));
  const Input in = CodeRows(*w, workspace_.attention().data(), step_->rows(),
                            workspace_.input_codes());
  Multiply(*w, in, {.data = workspace_.x().data(), .stride = shape_.dim, .add = true});
  return OkStatus();
}

Status CpuBackend::Mlp(const LayerWeights& weights) {
  RENGA_RETURN_IF_ERROR(CheckInStep());
  RENGA_ASSIGN_OR_RETURN(
      const PackedMatrix* gate_up,
      FindMatrix(weights.gate_up, 2 * int64_t{shape_.ffn}, shape_.dim, "gate_up"));
  RENGA_ASSIGN_OR_RETURN(const PackedMatrix* down,
                         FindMatrix(weights.down, shape_.dim, shape_.ffn, "down"));
  RENGA_ASSIGN_OR_RETURN(const float* norm,
                         FindVector(weights.mlp_norm, shape_.dim, "mlp_norm"));
  if (gate_up->segments().size() != 2 || gate_up->segments()[0].rows != shape_.ffn) {
    return InvalidArgument("gate_up", "must be stacked from two matrices of ffn rows");
  }
  const int64_t rows = step_->rows();
  const Input in = NormRows(*gate_up, norm, rows, [](int64_t row) { return row; });
  pool_.Run(gate_up->segments()[0].panels,
            [&](int64_t panel, int) { GateUpPanel(*gate_up, in, panel); });
  const Input act =
      CodeRows(*down, workspace_.act().data(), rows, workspace_.act_codes());
  Multiply(*down, act,
           {.data = workspace_.x().data(), .stride = shape_.dim, .add = true});
  return OkStatus();
}

void CpuBackend::GateUpStrip(const PackedMatrix& gate_up, const Input& in, int64_t panel,
                             int64_t first_row, float* gate, float* up) {
  for (int64_t half = 0; half < 2; ++half) {
    const PackedMatrix::Segment& segment = gate_up.segments()[static_cast<size_t>(half)];
    Matmul(segment.type,
           {.panels = segment.data + panel * segment.panel_bytes,
            .panel_count = 1,
            .cols = shape_.dim,
            .outputs = std::min(kPanelRows, segment.rows - panel * kPanelRows),
            .quant = TileOf(in.codes, shape_.dim, first_row / kTileRows),
            .x = in.x + first_row * shape_.dim,
            .x_stride = shape_.dim,
            .rows = std::min(kStripRows, in.rows - first_row),
            .out = half == 0 ? gate : up,
            .out_stride = kPanelRows});
  }
}

void CpuBackend::GateUpPanel(const PackedMatrix& gate_up, const Input& in,
                             int64_t panel) {
  alignas(64) float gate[kStripRows * kPanelRows];
  alignas(64) float up[kStripRows * kPanelRows];
  const int64_t columns = std::min(kPanelRows, shape_.ffn - panel * kPanelRows);
  for (int64_t first = 0; first < in.rows; first += kStripRows) {
    GateUpStrip(gate_up, in, panel, first, gate, up);
    const int64_t rows = std::min(kStripRows, in.rows - first);
    for (int64_t row = 0; row < rows; ++row) {
      float* out =
          workspace_.act().data() + (first + row) * shape_.ffn + panel * kPanelRows;
      ops_.swiglu(gate + row * kPanelRows, up + row * kPanelRows, columns, out);
    }
  }
}

Status CpuBackend::Head(VectorId norm, MatrixId table) {
  RENGA_RETURN_IF_ERROR(CheckInStep());
  RENGA_ASSIGN_OR_RETURN(const PackedMatrix* w,
                         FindMatrix(table, shape_.vocab, shape_.dim, "head"));
  RENGA_ASSIGN_OR_RETURN(const float* weight,
                         FindVector(norm, shape_.dim, "output_norm"));
  const std::span<const int32_t> wanted = step_->batch().logit_rows;
  logit_rows_ = static_cast<int64_t>(wanted.size());
  const Input in = NormRows(*w, weight, logit_rows_, [&](int64_t row) {
    return static_cast<int64_t>(wanted[static_cast<size_t>(row)]);
  });
  Multiply(*w, in, {.data = workspace_.logits().data(), .stride = shape_.vocab});
  pool_.EndStretch();
  return OkStatus();
}

Status CpuBackend::Sample(std::span<const SampleSpec> specs,
                          std::span<SampleResult> results) {
  RENGA_RETURN_IF_ERROR(
      CheckSampleCall(specs, results, workspace_.max_specs(), logit_rows_, shape_.vocab));
  pool_.Run(static_cast<int64_t>(specs.size()), [&](int64_t i, int worker) {
    results[static_cast<size_t>(i)] =
        SampleOne(specs[static_cast<size_t>(i)], worker, workspace_.top(i));
  });
  return OkStatus();
}

SampleResult CpuBackend::SampleOne(const SampleSpec& spec, int worker,
                                   std::span<TopLogprob> top) {
  return SampleRow(ops_, LogitRow(spec.logit_row), spec,
                   {.scratch = workspace_.sample_scratch(worker),
                    .edited = workspace_.edited_logits(worker),
                    .top = top});
}

std::span<const float> CpuBackend::LogitRow(int32_t logit_row) {
  return workspace_.logits().subspan(
      static_cast<size_t>(logit_row) * static_cast<size_t>(shape_.vocab),
      static_cast<size_t>(shape_.vocab));
}

StatusOr<std::span<const float>> CpuBackend::Logits(int32_t logit_row) {
  if (logit_row < 0 || logit_row >= logit_rows_) {
    return InvalidArgument("logit_row", std::to_string(logit_row) +
                                            " is not one of this step's " +
                                            std::to_string(logit_rows_) + " logit rows");
  }
  return LogitRow(logit_row);
}

}  // namespace renga
