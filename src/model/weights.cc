#include "model/weights.h"

#include <bit>
#include <cstring>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/status_macros.h"
#include "formats/ggml_type.h"

namespace renga {
namespace {

// Exact: every half is a float.
float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // Zero or subnormal: mantissa * 2^-24.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 0x1f ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

// Hands out the tensors of a file by name, and knows which were never asked for.
class TensorFinder {
 public:
  explicit TensorFinder(const GgufFile& file) : file_(file) {}

  Status Matrix(const std::string& name, int64_t rows, int64_t cols, TensorView& view) {
    RENGA_ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name));
    if (tensor->dims != std::vector<int64_t>{cols, rows}) {
      return WrongShape(*tensor, {cols, rows});
    }
    switch (tensor->ggml_type) {
      case kGgmlF32:
        view.type = TensorType::kF32;
        break;
      case kGgmlF16:
        view.type = TensorType::kF16;
        break;
      case kGgmlBf16:
        view.type = TensorType::kBf16;
        break;
      case kGgmlQ4_0:
        view.type = TensorType::kQ4_0;
        break;
      case kGgmlQ4_1:
        view.type = TensorType::kQ4_1;
        break;
      case kGgmlQ4K:
        view.type = TensorType::kQ4_K;
        break;
      case kGgmlQ8_0:
        view.type = TensorType::kQ8_0;
        break;
      default:
        return WrongType(*tensor, "F32, F16, BF16, Q4_0, Q4_1, Q4_K and Q8_0");
    }
    view.rows = rows;
    view.cols = cols;
    view.data = tensor->data;
    view.name = tensor->name;
    return OkStatus();
  }

  Status Vector(const std::string& name, int64_t size, std::vector<float>& values) {
    RENGA_ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name));
    if (tensor->dims != std::vector<int64_t>{size}) return WrongShape(*tensor, {size});
    values.resize(static_cast<size_t>(size));
    if (tensor->ggml_type == kGgmlF32) {
      std::memcpy(values.data(), tensor->data, values.size() * sizeof(float));
      return OkStatus();
    }
    if (tensor->ggml_type != kGgmlF16) return WrongType(*tensor, "F32 and F16");
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t half = 0;
      std::memcpy(&half, tensor->data + i * sizeof half, sizeof half);
      values[i] = HalfToFloat(half);
    }
    return OkStatus();
  }

  Status CheckAllUsed() const {
    if (used_ == file_.tensors().size()) return OkStatus();
    for (const GgufTensor& tensor : file_.tensors()) {
      if (used_names_.contains(tensor.name)) continue;
      return Unimplemented(file_.name() + ": the graph has no place for this tensor")
          .WithField(tensor.name);
    }
    return Internal("tensors were counted wrongly");
  }

 private:
  StatusOr<const GgufTensor*> Find(const std::string& name) {
    const GgufTensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      return InvalidArgument(name, file_.name() + ": tensor is missing");
    }
    ++used_;
    used_names_.insert(name);
    return tensor;
  }

  static std::string DimsText(const std::vector<int64_t>& dims) {
    std::string text;
    for (const int64_t dim : dims) {
      if (!text.empty()) text += " x ";
      text += std::to_string(dim);
    }
    return text;
  }

  Status WrongShape(const GgufTensor& tensor, const std::vector<int64_t>& wanted) const {
    return InvalidArgument(tensor.name, file_.name() + ": must be " + DimsText(wanted) +
                                            ", is " + DimsText(tensor.dims));
  }

  Status WrongType(const GgufTensor& tensor, const char* supported) const {
    return Unimplemented(file_.name() + ": is of type " + GgmlTypeName(tensor.ggml_type) +
                         "; supported here: " + supported)
        .WithField(tensor.name);
  }

  const GgufFile& file_;
  size_t used_ = 0;
  std::unordered_set<std::string> used_names_;
};

Status FindLayer(TensorFinder& finder, const GraphShape& shape, int32_t index,
                 LayerTensors& layer) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const int64_t q_rows = int64_t{shape.heads} * shape.head_dim;
  const int64_t kv_rows = int64_t{shape.kv_heads} * shape.head_dim;
  const auto matrix = [&](const char* name, int64_t rows, int64_t cols,
                          TensorView& view) {
    return finder.Matrix(prefix + name + ".weight", rows, cols, view);
  };
  RENGA_RETURN_IF_ERROR(
      finder.Vector(prefix + "attn_norm.weight", shape.dim, layer.attention_norm));
  RENGA_RETURN_IF_ERROR(matrix("attn_q", q_rows, shape.dim, layer.qkv[0]));
  RENGA_RETURN_IF_ERROR(matrix("attn_k", kv_rows, shape.dim, layer.qkv[1]));
  RENGA_RETURN_IF_ERROR(matrix("attn_v", kv_rows, shape.dim, layer.qkv[2]));
  RENGA_RETURN_IF_ERROR(matrix("attn_output", shape.dim, q_rows, layer.attention_out[0]));
  RENGA_RETURN_IF_ERROR(
      finder.Vector(prefix + "ffn_norm.weight", shape.dim, layer.mlp_norm));
  RENGA_RETURN_IF_ERROR(matrix("ffn_gate", shape.ffn, shape.dim, layer.gate_up[0]));
  RENGA_RETURN_IF_ERROR(matrix("ffn_up", shape.ffn, shape.dim, layer.gate_up[1]));
  return matrix("ffn_down", shape.dim, shape.ffn, layer.down[0]);
}

}  // namespace

StatusOr<ModelTensors> FindModelTensors(const GgufFile& file, const ModelConfig& config) {
  const GraphShape& shape = config.graph;
  TensorFinder finder(file);
  ModelTensors tensors;
  RENGA_RETURN_IF_ERROR(
      finder.Matrix("token_embd.weight", shape.vocab, shape.dim, tensors.embedding));
  tensors.head = tensors.embedding;
  if (!config.tied_embeddings) {
    RENGA_RETURN_IF_ERROR(
        finder.Matrix("output.weight", shape.vocab, shape.dim, tensors.head));
  }
  RENGA_RETURN_IF_ERROR(
      finder.Vector("output_norm.weight", shape.dim, tensors.output_norm));
  for (int32_t index = 0; index < shape.layers; ++index) {
    RENGA_RETURN_IF_ERROR(FindLayer(finder, shape, index, tensors.layers.emplace_back()));
  }
  RENGA_RETURN_IF_ERROR(finder.CheckAllUsed());
  return tensors;
}

}  // namespace renga
