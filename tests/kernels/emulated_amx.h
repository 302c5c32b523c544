// The AMX products over emulated tiles, compiled with AVX-512's flags: to be called only
// on a CPU that has the table "avx512".

#pragma once

#include "kernels/ops.h"

namespace renga {

void EmulatedMatmulQ4_1(const MatmulArgs& args);
void EmulatedMatmulQ4K(const MatmulArgs& args);
void EmulatedMatmulQ8_0(const MatmulArgs& args);

}  // namespace renga
