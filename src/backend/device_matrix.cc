// See device_matrix.h.

#include "backend/device_matrix.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "backend/tensor_check.h"
#include "base/aligned_buffer.h"
#include "base/status_macros.h"

namespace renga {

namespace {

using cuda::DeviceTypeOf;
using cuda::DeviceWeightBytes;
using cuda::DeviceWeightType;

constexpr int64_t kTileRows = 16;    // A piece of a stack begins at such a row.
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
         views[count - 1].rows % kTileRows == 0) {
    ++count;
  }
  return count;
}

// Packs one view into `out`, the whole segment.
Status PackView(const TensorView& view, cuda::PackArgs whole, ThreadPool& pool) {
  const WeightType type = WeightTypeOf(view.type);
  const int64_t row_bytes = FileRowBytes(type, view.cols);
  const auto* file = reinterpret_cast<const uint8_t*>(view.data);
  std::atomic<bool> fits{true};
  pool.Run((view.rows + kPieceRows - 1) / kPieceRows, [&](int64_t piece, int) {
    const int64_t first = piece * kPieceRows;
    cuda::PackArgs args = whole;
    args.type = type;
    args.file = file + first * row_bytes;
    args.rows = std::min(kPieceRows, view.rows - first);
    args.first_row += first;
    if (!cuda::PackDeviceWeight(args)) fits = false;
  });
  if (fits) return OkStatus();
  return RefuseTensor(view,
                      "a value is not a number that a half can hold (up to 65504; of a "
                      "Q4_0 block, a scale below 8192)");
}

}  // namespace

StatusOr<DeviceMatrix> DeviceMatrix::Load(std::span<const TensorView> stacked,
                                          const Loader& loader) {
  if (stacked.empty()) return InvalidArgument("tensor", "no matrix to load");
  DeviceMatrix matrix;
  matrix.cols_ = stacked[0].cols;
  for (const TensorView& view : stacked) {
    RENGA_RETURN_IF_ERROR(CheckView(view, matrix.cols_));
  }
  while (!stacked.empty()) {
    const size_t views = SegmentViews(stacked);
    RENGA_RETURN_IF_ERROR(matrix.LoadSegment(stacked.first(views), loader));
    stacked = stacked.subspan(views);
  }
  return matrix;
}

Status DeviceMatrix::LoadSegment(std::span<const TensorView> views,
                                 const Loader& loader) {
  int64_t rows = 0;
  for (const TensorView& view : views) rows += view.rows;
  const DeviceWeightType type = TypeOf(views[0]);
  const int64_t bytes = DeviceWeightBytes(type, rows, cols_);
  AlignedBuffer host = AlignedBuffer::Allocate(static_cast<size_t>(bytes));
  if (host.data() == nullptr) {
    return ResourceExhausted("no memory to pack a matrix of " + std::to_string(bytes) +
                             " bytes");
  }
  cuda::PackArgs args{
      .cols = cols_, .total_rows = rows, .out = host.As<uint8_t>().data()};
  for (const TensorView& view : views) {
    RENGA_RETURN_IF_ERROR(PackView(view, args, loader.pool));
    args.first_row += view.rows;
  }
  RENGA_ASSIGN_OR_RETURN(void* data, loader.arena.Allocate(bytes, "weights"));
  RENGA_RETURN_IF_ERROR(
      loader.device.CopyToDevice(data, host.data(), bytes, loader.stream));
  RENGA_RETURN_IF_ERROR(loader.device.Synchronize(loader.stream));
  segments_.push_back({.type = type,
                       .data = static_cast<const uint8_t*>(data),
                       .rows = static_cast<int32_t>(rows),
                       .first_row = static_cast<int32_t>(rows_)});
  rows_ += rows;
  return OkStatus();
}

}  // namespace renga
