// See packed_matrix.h.

#include "backend/packed_matrix.h"

#include <algorithm>
#include <string>

#include "backend/tensor_check.h"
#include "base/status_macros.h"
#include "kernels/cpu/cpu_ops.h"

namespace renga {

namespace {

constexpr int64_t kPiecePanels = 4;  // Packed by one worker at a time.

Status CheckView(const TensorView& view, int64_t cols) {
  RENGA_RETURN_IF_ERROR(CheckTensor(view, cols));
  if (FitsPanels(WeightTypeOf(view.type), reinterpret_cast<const uint8_t*>(view.data),
                 view.rows, cols)) {
    return OkStatus();
  }
  return RefuseTensor(view,
                      "a block's scale is 8192 or more, which is more than -8 times a "
                      "scale can be as a half");
}

void PackAll(const TensorView& view, uint8_t* panels, ThreadPool& pool) {
  const WeightType type = WeightTypeOf(view.type);
  const int64_t panel_bytes = PanelBytes(PanelTypeOf(type), view.cols);
  const int64_t row_bytes = FileRowBytes(type, view.cols);
  const auto* data = reinterpret_cast<const uint8_t*>(view.data);
  constexpr int64_t kPieceRows = kPiecePanels * kPanelRows;
  pool.Run((view.rows + kPieceRows - 1) / kPieceRows, [&](int64_t piece, int) {
    const int64_t first = piece * kPieceRows;
    PackPanels(type, data + first * row_bytes, std::min(kPieceRows, view.rows - first),
               view.cols, panels + piece * kPiecePanels * panel_bytes);
  });
}

}  // namespace

StatusOr<PackedMatrix> PackedMatrix::Pack(std::span<const TensorView> stacked,
                                          ThreadPool& pool) {
  if (stacked.empty()) return InvalidArgument("tensor", "no matrix to load");
  PackedMatrix matrix;
  matrix.cols_ = stacked[0].cols;
  int64_t bytes = 0;
  for (const TensorView& view : stacked) {
    if (Status status = CheckView(view, matrix.cols_); !status.ok()) return status;
    Segment segment{.type = PanelTypeOf(WeightTypeOf(view.type)),
                    .rows = view.rows,
                    .first_row = matrix.rows_,
                    .first_panel = matrix.panels_,
                    .panels = (view.rows + kPanelRows - 1) / kPanelRows};
    segment.panel_bytes = PanelBytes(segment.type, matrix.cols_);
    bytes += segment.panels * segment.panel_bytes;
    matrix.rows_ += segment.rows;
    matrix.panels_ += segment.panels;
    (IsQuantised(segment.type) ? matrix.any_quantised_ : matrix.any_float_) = true;
    matrix.segments_.push_back(segment);
  }
  matrix.data_ =
      AlignedBuffer::Allocate(static_cast<size_t>(bytes), MemoryPurpose::kWeights);
  if (matrix.data_.data() == nullptr) {
    return ResourceExhausted("no memory for a matrix of " + std::to_string(bytes) +
                             " bytes");
  }
  uint8_t* target = matrix.data_.As<uint8_t>().data();
  for (size_t i = 0; i < stacked.size(); ++i) {
    Segment& segment = matrix.segments_[i];
    segment.data = target;
    PackAll(stacked[i], target, pool);
    target += segment.panels * segment.panel_bytes;
  }
  return matrix;
}

void PackedMatrix::UnpackRow(int64_t row, float* out) const {
  size_t i = 0;
  while (row >= segments_[i].first_row + segments_[i].rows) ++i;
  const Segment& segment = segments_[i];
  renga::UnpackRow(segment.type, segment.data, row - segment.first_row, cols_, out);
}

}  // namespace renga
