// See tensor_check.h.

#include "backend/tensor_check.h"

namespace renga {

namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 24;

}  // namespace

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
    case TensorType::kBf16:
      return WeightType::kBf16;
  }
  return WeightType::kF32;
}

Status RefuseTensor(const TensorView& view, const std::string& why) {
  const std::string shape = std::string(TensorTypeName(view.type)) + " " +
                            std::to_string(view.rows) + " x " + std::to_string(view.cols);
  return InvalidArgument(view.name.empty() ? "tensor" : std::string(view.name),
                         shape + ": " + why);
}

Status CheckTensor(const TensorView& view, int64_t cols) {
  if (view.data == nullptr) return RefuseTensor(view, "no data");
  if (view.rows < 1 || view.cols < 1 || view.rows > kMaxExtent ||
      view.cols > kMaxExtent) {
    return RefuseTensor(
        view, "rows and columns must be in [1, " + std::to_string(kMaxExtent) + "]");
  }
  if (view.cols != cols) {
    return RefuseTensor(view,
                        "stacked on a matrix with " + std::to_string(cols) + " columns");
  }
  const WeightType type = WeightTypeOf(view.type);
  if (cols % FileBlockValues(type) != 0) {
    return RefuseTensor(
        view, "columns must be a multiple of " + std::to_string(FileBlockValues(type)));
  }
  return OkStatus();
}

}  // namespace renga
