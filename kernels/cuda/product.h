// Weights on the device, and the products with them: arguments and launch shapes.
//
// Numerics. Activations that enter a product are f16, sums are f32. A quantised weight is
// made into one f16 in registers: w = f16(d * q + m), rounded once (kQ4K: to f32, then to
// f16). k is cut into kProductSplits parts by the weight's shape alone (weight_format.h:
// SplitOf); a part is one chain of mma.m16n8k16 in order of k from 0, and the parts that
// are not empty are added to 0 in order. Every kernel here does that, so an output has
// the same bits for 1 row and for 4,096; which one runs is a question of speed.
//
// Legend: outputs = rows of the weight; cols = k; rows = tokens.

#pragma once

#include <stdint.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/weight_format.h"

namespace renga::cuda {

// Ids: 100 + 10 type + kernel. The product kernels differ in speed alone.
enum class ProductKernel : int32_t {
  kRows4,  // ProductSmall, at most so many rows.
  kRows8,
  kRows16,
  kSquare64,  // ProductLarge, squares of so many outputs and rows.
  kSquare128,
  kEmbed,
  kDequantise,
};
constexpr KernelId ProductKernelId(DeviceWeightType type, ProductKernel kernel) {
  return static_cast<KernelId>(100 + 10 * static_cast<int32_t>(type) +
                               static_cast<int32_t>(kernel));
}

// kProduct4F16, ...: the names in the list of product.cuh.
#define RENGA_PRODUCT_IDS(T)                                              \
  inline constexpr KernelId kProduct4##T =                                \
      ProductKernelId(DeviceWeightType::k##T, ProductKernel::kRows4);     \
  inline constexpr KernelId kProduct8##T =                                \
      ProductKernelId(DeviceWeightType::k##T, ProductKernel::kRows8);     \
  inline constexpr KernelId kProduct16##T =                               \
      ProductKernelId(DeviceWeightType::k##T, ProductKernel::kRows16);    \
  inline constexpr KernelId kProduct64##T =                               \
      ProductKernelId(DeviceWeightType::k##T, ProductKernel::kSquare64);  \
  inline constexpr KernelId kProduct128##T =                              \
      ProductKernelId(DeviceWeightType::k##T, ProductKernel::kSquare128); \
  inline constexpr KernelId kEmbed##T =                                   \
      ProductKernelId(DeviceWeightType::k##T, ProductKernel::kEmbed);     \
  inline constexpr KernelId kDequantise##T =                              \
      ProductKernelId(DeviceWeightType::k##T, ProductKernel::kDequantise);
RENGA_PRODUCT_IDS(F16)
RENGA_PRODUCT_IDS(Q8)
RENGA_PRODUCT_IDS(Q4)
RENGA_PRODUCT_IDS(Q4K)
#undef RENGA_PRODUCT_IDS

struct ProductArgs {
  const uint8_t* weights = nullptr;  // Packed (weight_format.h).
  const uint16_t* x = nullptr;       // f16 [rows][x_stride]; zeros from cols to x_stride.
  float* out = nullptr;              // [rows][out_stride]
  const int32_t* rows = nullptr;     // On the device: how many there are.
  int64_t x_stride = 0;              // PaddedCols(cols).
  int64_t out_stride = 0;
  int32_t outputs = 0;
  int32_t cols = 0;
  int32_t add = 0;  // 1: out += instead of out =.
};

// For at most `most_rows` rows (what the counter on the device may say).
KernelLaunch ProductLaunch(DeviceWeightType type, const ProductArgs& args,
                           int32_t most_rows);

struct EmbedArgs {
  const uint8_t* weights = nullptr;  // [vocab, dim], packed.
  const int32_t* tokens = nullptr;   // [rows]; NaN comes out for one beyond vocab.
  const int32_t* rows = nullptr;     // On the device.
  float* x = nullptr;                // [rows][dim]: the exact value, rounded to f32.
  int32_t vocab = 0;
  int32_t dim = 0;
};
KernelLaunch EmbedLaunch(DeviceWeightType type, const EmbedArgs& args, int32_t most_rows);

// The f16 values that the products use, row by row: for cuBLASLt.
struct DequantiseArgs {
  const uint8_t* weights = nullptr;
  uint16_t* out = nullptr;  // f16 [outputs][PaddedCols(cols)], zeros behind cols.
  int32_t outputs = 0;
  int32_t cols = 0;
};
KernelLaunch DequantiseLaunch(DeviceWeightType type, const DequantiseArgs& args);

}  // namespace renga::cuda
