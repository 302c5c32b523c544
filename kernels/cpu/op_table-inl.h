// Fills the op table of one SIMD instruction set; included last.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

#define RENGA_STRING_INNER(x) #x
#define RENGA_STRING(x) RENGA_STRING_INNER(x)

namespace renga {
namespace RENGA_ISA {

extern const CpuOps kOps;
const CpuOps kOps = {
    .name = RENGA_STRING(RENGA_ISA),
    .matmul_q4_1 = MatmulQuant<WeightType::kQ4_1>,
    .matmul_q4_k = MatmulQuant<WeightType::kQ4_K>,
    .matmul_q8_0 = MatmulQuant<WeightType::kQ8_0>,
    .matmul_f16 = MatmulFloat<uint16_t>,
    .matmul_f32 = MatmulFloat<float>,
    .rms_norm = RmsNorm,
    .quantise_rows = QuantiseRows,
    .swiglu = Swiglu,
    .rope = Rope,
    .kv_append_f16 = KvAppend<uint16_t>,
    .kv_append_f32 = KvAppend<float>,
    .kv_close_int8 = KvCloseInt8,
    .attend_f16 = Attend<uint16_t>,
    .attend_f32 = Attend<float>,
    .attend_int8 = Attend<Int8Page>,
    .merge_partials = MergePartials,
    .block_max = BlockMax,
    .at_least = AtLeastRow,
    .sample_weights = SampleWeights,
    .exp_sum = ExpSum,
};

}  // namespace RENGA_ISA
}  // namespace renga
