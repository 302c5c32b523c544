#include "tests/kernels/emulated_amx.h"

// As in kernels/cpu/ops_amx.cc, with other tiles. Nothing of std:: may be instantiated
// here: the copy of this file could be the one that the linker keeps for all.

#define RENGA_ISA emulated_amx

#include "kernels/cpu/vec_avx512-inl.h"
//
#include "kernels/cpu/matmul_float-inl.h"
//
#include "kernels/cpu/matmul_quant_avx512-inl.h"
//
#include "kernels/cpu/matmul_quant_amx-inl.h"
//
#include "tests/kernels/tiles_emulated.h"

namespace renga {

void EmulatedMatmulQ4_1(const MatmulArgs& args) {
  emulated_amx::MatmulTiles<WeightType::kQ4_1, emulated_amx::EmulatedTiles>(args);
}
void EmulatedMatmulQ4K(const MatmulArgs& args) {
  emulated_amx::MatmulTiles<WeightType::kQ4_K, emulated_amx::EmulatedTiles>(args);
}
void EmulatedMatmulQ8_0(const MatmulArgs& args) {
  emulated_amx::MatmulTiles<WeightType::kQ8_0, emulated_amx::EmulatedTiles>(args);
}

}  // namespace renga
