// Which kernel a product runs, and with which shape.

#include "kernels/cuda/product.h"

#include <initializer_list>

#include "kernels/cuda/product_shape.h"

namespace renga::cuda {

namespace {

// From so many squares of 128 on a GPU is busy with them; before it has more processors
// than squares, and squares of 64 are spread wider.
constexpr int64_t kFullGrid = 96;

KernelLaunch SmallLaunch(DeviceWeightType type, ProductKernel kernel, int32_t rows,
                         int32_t outputs) {
  const SmallShape shape = SmallShapeOf(type, rows);
  return {.kernel = ProductKernelId(type, kernel),
          .shape = {.grid_x = DivideUp(outputs, shape.tiles * kWeightTileRows),
                    .threads = SmallShape::kThreads,
                    .shared_bytes = shape.shared_bytes}};
}

KernelLaunch LargeLaunch(DeviceWeightType type, ProductKernel kernel, int32_t side,
                         int32_t outputs, int32_t most_rows) {
  const LargeShape shape = LargeShapeOf(type, side);
  return {.kernel = ProductKernelId(type, kernel),
          .shape = {.grid_x = DivideUp(outputs, side),
                    .grid_y = DivideUp(most_rows, side),
                    .threads = shape.threads,
                    .shared_bytes = shape.shared_bytes}};
}

constexpr bool SharedFits() {
  for (int type = 0; type < kDeviceWeightTypes; ++type) {
    const auto t = static_cast<DeviceWeightType>(type);
    for (const int rows : {4, 8, 16}) {
      if (SmallShapeOf(t, rows).shared_bytes > kMaxSharedBytes) return false;
    }
    for (const int side : {64, 128}) {
      if (LargeShapeOf(t, side).shared_bytes > kMaxSharedBytes) return false;
    }
  }
  return true;
}
static_assert(SharedFits());

}  // namespace

KernelLaunch ProductLaunch(DeviceWeightType type, const ProductArgs& args,
                           int32_t most_rows) {
  const int32_t outputs = args.outputs;
  if (most_rows <= 4) return SmallLaunch(type, ProductKernel::kRows4, 4, outputs);
  if (most_rows <= 8) return SmallLaunch(type, ProductKernel::kRows8, 8, outputs);
  if (most_rows <= 16) return SmallLaunch(type, ProductKernel::kRows16, 16, outputs);
  const int64_t squares = int64_t{DivideUp(outputs, 128)} * DivideUp(most_rows, 128);
  if (most_rows <= 64 || squares < kFullGrid) {
    return LargeLaunch(type, ProductKernel::kSquare64, 64, outputs, most_rows);
  }
  return LargeLaunch(type, ProductKernel::kSquare128, 128, outputs, most_rows);
}

KernelLaunch EmbedLaunch(DeviceWeightType type, const EmbedArgs& args,
                         int32_t most_rows) {
  return {.kernel = ProductKernelId(type, ProductKernel::kEmbed),
          .shape = {.grid_x = most_rows,
                    .grid_y = DivideUp(args.dim, kEmbedThreads),
                    .threads = kEmbedThreads}};
}

KernelLaunch DequantiseLaunch(DeviceWeightType type, const DequantiseArgs& args) {
  return {.kernel = ProductKernelId(type, ProductKernel::kDequantise),
          .shape = {.grid_x = DivideUp(args.outputs, kWeightTileRows),
                    .grid_y = DivideUp(RunsOf(args.cols), kDequantiseWarps),
                    .threads = kDequantiseWarps * kWarp,
                    .shared_bytes = kDequantiseWarps * StagedBytes(type)}};
}

}  // namespace renga::cuda
