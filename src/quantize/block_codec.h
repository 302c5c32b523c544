// Rows of weights between the types of model files and floats. The layouts are drawn in
// kernels/block_format.h.
//
// Thread safety: pure functions.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "renga/status.h"

namespace renga {

// Columns of one row; more is no matrix but an attack.
inline constexpr int64_t kMaxQuantiseColumns = int64_t{1} << 24;

// "f32", "f16", "q8_0", "q4_0", "q4_1" or "q4_k" -> the format's number; the field of an
// error is `option`.
StatusOr<uint32_t> ParseQuantType(std::string_view word, std::string_view option);
std::string QuantTypeName(uint32_t ggml_type);  // "Q4_K", also of types not written here.

// Values that one block of the type holds, and the bytes of one row.
// REQUIRES: a known type, whole blocks.
int64_t BlockValuesOf(uint32_t ggml_type);
int64_t RowBytes(uint32_t ggml_type, int64_t cols);

// F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K.
bool CanReadType(uint32_t ggml_type);
// F32, F16, Q8_0, Q4_0, Q4_1, Q4_K.
bool CanWriteType(uint32_t ggml_type);

// values = the row, exactly (Q4_K: as the engine computes it).
// REQUIRES: CanReadType, whole blocks.
void ReadRow(uint32_t ggml_type, const std::byte* row, std::span<float> values);

// The row that stands for the values best: see block_fit.h. False: a value or a scale is
// too large for the type. REQUIRES: CanWriteType, whole blocks, finite values.
bool WriteRow(uint32_t ggml_type, std::span<const float> values, std::byte* row);

}  // namespace renga
