// See packed_matrix.h.

#include "backend/packed_matrix.h"

#include <string>

#include "kernels/cpu/cpu_ops.h"

namespace renga {

namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 24;

WeightType WeightTypeOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return WeightType::kF32;
    case TensorType::kF16:
      return WeightType::kF16;
    case TensorType::kQ8_0:
      return WeightType::kQ8_0;
    case TensorType::kQ4_1:
      return WeightType::kQ4_1;
  }
  return WeightType::kF32;
}

std::string ShapeOf(const TensorView& view) {
  return std::string(TensorTypeName(view.type)) + " " + std::to_string(view.rows) +
         " x " + std::to_string(view.cols);
}

Status CheckView(const TensorView& view, int64_t cols) {
  if (view.data == nullptr) return InvalidArgument("tensor", ShapeOf(view) + ": no data");
  if (view.rows < 1 || view.cols < 1 || view.rows > kMaxExtent ||
      view.cols > kMaxExtent) {
    return InvalidArgument("tensor", ShapeOf(view) +
                                         ": rows and columns must be in [1, " +
                                         std::to_string(kMaxExtent) + "]");
  }
  if (view.cols != cols) {
    return InvalidArgument("tensor", ShapeOf(view) + ": stacked on a matrix with " +
                                         std::to_string(cols) + " columns");
  }
  if (IsQuantised(WeightTypeOf(view.type)) && cols % kBlockValues != 0) {
    return InvalidArgument("tensor",
                           ShapeOf(view) + ": columns must be a multiple of 32");
  }
  return OkStatus();
}

}  // namespace

StatusOr<PackedMatrix> PackedMatrix::Pack(std::span<const TensorView> stacked) {
  if (stacked.empty()) return InvalidArgument("tensor", "no matrix to load");
  PackedMatrix matrix;
  matrix.cols_ = stacked[0].cols;
  int64_t bytes = 0;
  for (const TensorView& view : stacked) {
    if (Status status = CheckView(view, matrix.cols_); !status.ok()) return status;
    Segment segment{.type = WeightTypeOf(view.type),
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
    PackPanels(segment.type, reinterpret_cast<const uint8_t*>(stacked[i].data),
               segment.rows, matrix.cols_, target);
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
