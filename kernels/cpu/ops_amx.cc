// Products with quantised weights on AMX tiles; the rest of the table "amx" is that of
// AVX-512 (cpu_ops.cc). Compiled with AVX-512's flags: the tile instructions are written
// as assembly, which needs none.

#define RENGA_ISA amx

#include "kernels/cpu/vec_avx512-inl.h"
//
#include "kernels/cpu/matmul_float-inl.h"
//
#include "kernels/cpu/matmul_quant_avx512-inl.h"
//
#include "kernels/cpu/matmul_quant_amx-inl.h"
//
#include "kernels/cpu/tiles_amx-inl.h"

namespace renga {
namespace amx {

void MatmulQ4_1(const MatmulArgs& args);
void MatmulQ4_1(const MatmulArgs& args) {
  MatmulTiles<WeightType::kQ4_1, AmxTiles>(args);
}

void MatmulQ4K(const MatmulArgs& args);
void MatmulQ4K(const MatmulArgs& args) { MatmulTiles<WeightType::kQ4_K, AmxTiles>(args); }

void MatmulQ8_0(const MatmulArgs& args);
void MatmulQ8_0(const MatmulArgs& args) {
  MatmulTiles<WeightType::kQ8_0, AmxTiles>(args);
}

}  // namespace amx
}  // namespace renga
