// See packed_matrix.h.

#include "backend/packed_matrix.h"

#include <algorithm>
#include <string>

#include "kernels/cpu/cpu_ops.h"

namespace renga {

namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 24;
constexpr int64_t kPiecePanels = 4;  // Packed by one worker at a time.

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
    case TensorType::kQ4_0:
      return WeightType::kQ4_0;
    case TensorType::kQ4_K:
      return WeightType::kQ4_K;
  }
  return WeightType::kF32;
}

Status Refuse(const TensorView& view, const std::string& why) {
  const std::string shape = std::string(TensorTypeName(view.type)) + " " +
                            std::to_string(view.rows) + " x " + std::to_string(view.cols);
  return InvalidArgument(view.name.empty() ? "tensor" : std::string(view.name),
                         shape + ": " + why);
}

Status CheckView(const TensorView& view, int64_t cols) {
  if (view.data == nullptr) return Refuse(view, "no data");
  if (view.rows < 1 || view.cols < 1 || view.rows > kMaxExtent ||
      view.cols > kMaxExtent) {
    return Refuse(view,
                  "rows and columns must be in [1, " + std::to_string(kMaxExtent) + "]");
  }
  if (view.cols != cols) {
    return Refuse(view, "stacked on a matrix with " + std::to_string(cols) + " columns");
  }
  const WeightType type = WeightTypeOf(view.type);
  if (cols % FileBlockValues(type) != 0) {
    return Refuse(
        view, "columns must be a multiple of " + std::to_string(FileBlockValues(type)));
  }
  if (!FitsPanels(type, reinterpret_cast<const uint8_t*>(view.data), view.rows, cols)) {
    return Refuse(view,
                  "a block's scale is 8192 or more, which is more than -8 times a "
                  "scale can be as a half");
  }
  return OkStatus();
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
