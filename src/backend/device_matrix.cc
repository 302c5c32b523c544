// See device_matrix.h.

#include "backend/device_matrix.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "backend/tensor_check.h"
#include "base/status_macros.h"

namespace renga {

namespace {

using cuda::DeviceTypeOf;
using cuda::DeviceWeightBytes;
using cuda::DeviceWeightType;
using cuda::kWeightTileRows;  // A piece of a stack begins at such a row.

constexpr int64_t kPieceRows = 128;  // Packed by one worker at a time.
constexpr int64_t kColumnUnit = 8;   // Activations are read in pieces of 16 bytes.

Status CheckView(const TensorView& view, int64_t cols) {
  RENGA_RETURN_IF_ERROR(CheckTensor(view, cols));
  if (cols % kColumnUnit == 0) return OkStatus();
  return RefuseTensor(view, "columns must be a multiple of 8 on a CUDA device");
}

DeviceWeightType TypeOf(const TensorView& view) {
  return DeviceTypeOf(WeightTypeOf(view.type));
}

// How many of the first views form one segment.
size_t SegmentViews(std::span<const TensorView> views) {
  size_t count = 1;
  while (count < views.size() && TypeOf(views[count]) == TypeOf(views[0]) &&
         views[count - 1].rows % kWeightTileRows == 0) {
    ++count;
  }
  return count;
}

// Packs `rows` rows from `first` on, a matrix of their own, into `out`.
Status PackRows(const TensorView& view, int64_t first, int64_t rows, uint8_t* out,
                ThreadPool& pool) {
  const WeightType type = WeightTypeOf(view.type);
  const int64_t row_bytes = FileRowBytes(type, view.cols);
  const auto* file = reinterpret_cast<const uint8_t*>(view.data);
  std::atomic<bool> fits{true};
  pool.Run((rows + kPieceRows - 1) / kPieceRows, [&](int64_t piece, int) {
    const int64_t begin = piece * kPieceRows;
    const bool packed =
        cuda::PackDeviceWeight({.type = type,
                                .file = file + (first + begin) * row_bytes,
                                .rows = std::min(kPieceRows, rows - begin),
                                .cols = view.cols,
                                .first_row = begin,
                                .total_rows = rows,
                                .out = out});
    if (!packed) fits = false;
  });
  if (fits) return OkStatus();
  return RefuseTensor(view,
                      "a value is not a number that a half can hold (up to 65504; of a "
                      "quantised block, a scale or its largest value)");
}

// Packs and sends one view, as many rows at a time as a buffer of the uploader holds.
Status SendView(const TensorView& view, uint8_t* to, WeightUploader& uploader,
                ThreadPool& pool) {
  const int64_t tile_bytes = cuda::TileBytes(TypeOf(view), view.cols);
  const int64_t most_rows =
      std::max<int64_t>(uploader.buffer_bytes() / tile_bytes, 1) * kWeightTileRows;
  for (int64_t first = 0; first < view.rows; first += most_rows) {
    const int64_t rows = std::min(most_rows, view.rows - first);
    const int64_t bytes = (rows + kWeightTileRows - 1) / kWeightTileRows * tile_bytes;
    RENGA_ASSIGN_OR_RETURN(uint8_t * buffer, uploader.Buffer(bytes));
    RENGA_RETURN_IF_ERROR(PackRows(view, first, rows, buffer, pool));
    RENGA_RETURN_IF_ERROR(
        uploader.Send(to + first / kWeightTileRows * tile_bytes, bytes));
  }
  return OkStatus();
}

}  // namespace

StatusOr<DeviceMatrix> DeviceMatrix::Load(std::span<const TensorView> stacked,
                                          WeightUploader& uploader, DeviceArena& arena,
                                          ThreadPool& pool) {
  if (stacked.empty()) return InvalidArgument("tensor", "no matrix to load");
  DeviceMatrix matrix;
  matrix.cols_ = stacked[0].cols;
  for (const TensorView& view : stacked) {
    RENGA_RETURN_IF_ERROR(CheckView(view, matrix.cols_));
  }
  while (!stacked.empty()) {
    const size_t views = SegmentViews(stacked);
    RENGA_RETURN_IF_ERROR(
        matrix.LoadSegment(stacked.first(views), uploader, arena, pool));
    stacked = stacked.subspan(views);
  }
  return matrix;
}

Status DeviceMatrix::LoadSegment(std::span<const TensorView> views,
                                 WeightUploader& uploader, DeviceArena& arena,
                                 ThreadPool& pool) {
  int64_t rows = 0;
  for (const TensorView& view : views) rows += view.rows;
  const DeviceWeightType type = TypeOf(views[0]);
  RENGA_ASSIGN_OR_RETURN(void* data,
                         arena.Allocate(DeviceWeightBytes(type, rows, cols_), "weights"));
  auto* to = static_cast<uint8_t*>(data);
  for (const TensorView& view : views) {
    RENGA_RETURN_IF_ERROR(SendView(view, to, uploader, pool));
    to += view.rows / kWeightTileRows * cuda::TileBytes(type, cols_);
  }
  segments_.push_back({.type = type,
                       .data = static_cast<const uint8_t*>(data),
                       .rows = static_cast<int32_t>(rows),
                       .first_row = static_cast<int32_t>(rows_)});
  rows_ += rows;
  return OkStatus();
}

}  // namespace renga
