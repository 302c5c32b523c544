// See graph_check.h.

#include "backend/graph_check.h"

#include <cmath>
#include <string>

#include "base/status_macros.h"
#include "kernels/ops.h"

namespace renga {

namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 24;  // Of any width of the model.
constexpr int64_t kMaxRows = 1 << 16;             // Of one step.

Status CheckHeads(const GraphShape& shape) {
  RENGA_RETURN_IF_ERROR(CheckRange("heads", shape.heads, 1, 4096));
  RENGA_RETURN_IF_ERROR(CheckRange("kv_heads", shape.kv_heads, 1, shape.heads));
  RENGA_RETURN_IF_ERROR(CheckRange("head_dim", shape.head_dim, 2, kMaxHeadDim));
  if (shape.heads % shape.kv_heads != 0) {
    return InvalidArgument("kv_heads", std::to_string(shape.heads) +
                                           " heads cannot share " +
                                           std::to_string(shape.kv_heads) + " KV heads");
  }
  if (shape.head_dim % 2 != 0) return InvalidArgument("head_dim", "must be even");
  return OkStatus();
}

Status CheckRope(const GraphShape& shape) {
  RENGA_RETURN_IF_ERROR(CheckRange("rope_dims", shape.rope_dims, 0, shape.head_dim));
  if (shape.rope_dims % 2 != 0) return InvalidArgument("rope_dims", "must be even");
  RENGA_RETURN_IF_ERROR(
      CheckRange("rope_inverse_frequencies",
                 static_cast<int64_t>(shape.rope_inverse_frequencies.size()),
                 shape.rope_dims / 2, shape.rope_dims / 2));
  for (const double frequency : shape.rope_inverse_frequencies) {
    if (!std::isfinite(frequency)) {
      return InvalidArgument("rope_inverse_frequencies", "must be finite");
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(field, std::to_string(value) + " is not in [" +
                                    std::to_string(low) + ", " + std::to_string(high) +
                                    "]");
}

Status CheckGraph(const GraphShape& shape) {
  RENGA_RETURN_IF_ERROR(CheckRange("layers", shape.layers, 1, 4096));
  RENGA_RETURN_IF_ERROR(CheckRange("dim", shape.dim, 1, kMaxExtent));
  RENGA_RETURN_IF_ERROR(CheckRange("ffn", shape.ffn, 1, kMaxExtent));
  RENGA_RETURN_IF_ERROR(CheckRange("vocab", shape.vocab, 1, kMaxExtent));
  RENGA_RETURN_IF_ERROR(CheckRange("context", shape.context, 1, kMaxExtent));
  RENGA_RETURN_IF_ERROR(CheckHeads(shape));
  RENGA_RETURN_IF_ERROR(CheckRope(shape));
  if (!std::isfinite(shape.norm_eps) || shape.norm_eps < 0.0f) {
    return InvalidArgument("norm_eps", "must be finite and not negative");
  }
  return OkStatus();
}

Status CheckLimits(const BackendLimits& limits) {
  RENGA_RETURN_IF_ERROR(CheckRange("max_rows", limits.max_rows, 1, kMaxRows));
  RENGA_RETURN_IF_ERROR(CheckRange("max_sequences", limits.max_sequences, 1, kMaxRows));
  return CheckRange("max_logit_rows", limits.max_logit_rows, 1, kMaxRows);
}

}  // namespace renga
