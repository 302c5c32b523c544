#include "quantize/tensor_plan.h"

#include "base/status_macros.h"
#include "formats/ggml_type.h"
#include "quantize/block_codec.h"

namespace renga {
namespace {

bool IsTable(std::string_view name) {
  return name == "token_embd.weight" || name == "output.weight";
}

bool IsMatrix(const GgufTensor& tensor) {
  constexpr std::string_view kEnd = ".weight";
  return tensor.dims.size() >= 2 && tensor.name.ends_with(kEnd);
}

bool Divides(uint32_t type, int64_t cols) { return cols % BlockValuesOf(type) == 0; }

Status CheckTensor(const GgufFile& file, const GgufTensor& tensor,
                   const TensorPlan& plan) {
  if (file.FindTensor(tensor.name) != &tensor) {
    return InvalidArgument(tensor.name, file.name() + ": a name that is no plain text");
  }
  if (tensor.dims[0] > kMaxQuantiseColumns) {
    return InvalidArgument(
        tensor.name, file.name() + ": has " + std::to_string(tensor.dims[0]) +
                         " columns, at most " + std::to_string(kMaxQuantiseColumns));
  }
  // A tensor that keeps its type is copied, whatever it is.
  if (plan.type == tensor.ggml_type || CanReadType(tensor.ggml_type)) return OkStatus();
  return Unimplemented(file.name() + ": is of type " + GgmlTypeName(tensor.ggml_type) +
                       "; read here: F32, F16, BF16, Q8_0, Q4_0, Q4_1 and Q4_K")
      .WithField(tensor.name);
}

}  // namespace

uint32_t DefaultEmbeddingType(uint32_t matrix_type) {
  const bool small =
      matrix_type == kGgmlQ4_0 || matrix_type == kGgmlQ4_1 || matrix_type == kGgmlQ4K;
  return small ? kGgmlQ8_0 : matrix_type;
}

TensorPlan PlanTensor(const GgufTensor& tensor, const WantedTypes& wanted) {
  const bool vector = tensor.dims.size() == 1 && CanReadType(tensor.ggml_type);
  if (vector) return {.type = kGgmlF32};
  if (!IsMatrix(tensor)) return {.type = tensor.ggml_type};
  const uint32_t type = IsTable(tensor.name) ? wanted.embedding : wanted.matrix;
  const int64_t cols = tensor.dims[0];
  if (Divides(type, cols)) return {.type = type};
  return {.type = Divides(kGgmlQ8_0, cols) ? kGgmlQ8_0 : kGgmlF16, .fallback = true};
}

StatusOr<std::vector<TensorPlan>> PlanTensors(const GgufFile& file,
                                              const WantedTypes& wanted) {
  std::vector<TensorPlan> plans;
  for (const GgufTensor& tensor : file.tensors()) {
    plans.push_back(PlanTensor(tensor, wanted));
    RENGA_RETURN_IF_ERROR(CheckTensor(file, tensor, plans.back()));
  }
  return plans;
}

uint32_t FileTypeOf(uint32_t matrix_type) {
  // "Mostly" this type; Q4_K: its small mix, which has no wider tensors by rule.
  switch (matrix_type) {
    case kGgmlF32:
      return 0;
    case kGgmlF16:
      return 1;
    case kGgmlQ4_0:
      return 2;
    case kGgmlQ4_1:
      return 3;
    case kGgmlQ8_0:
      return 7;
    default:
      return 14;
  }
}

}  // namespace renga
