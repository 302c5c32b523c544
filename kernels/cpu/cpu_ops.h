// Which instruction sets this machine has, and their op tables.
//
// Thread safety: every function may be called from any thread.

#pragma once

#include "kernels/ops.h"

namespace renga {

// The table called `name` ("portable", "avx2", "avx512", "amx"), or nullptr if this CPU
// cannot run it or the name is unknown. "amx" asks Linux once for the tile registers of
// this process, and is not offered if it refuses.
const CpuOps* FindCpuOps(const char* name);

// The best table this CPU can run.
const CpuOps* BestCpuOps();

// The names FindCpuOps knows, best last, whether this CPU can run them or not.
constexpr int kCpuOpsNames = 4;
extern const char* const kCpuOpsName[kCpuOpsNames];

// Weight layout of the file -> panels of PanelTypeOf(type); once per load, the same for
// every table. Packs `rows` rows of `cols` values at `data` into ceil(rows / 32) panels
// at `panels`. REQUIRES: cols % FileBlockValues(type) == 0; FitsPanels.
void PackPanels(WeightType type, const uint8_t* data, int64_t rows, int64_t cols,
                uint8_t* panels);

// Whether the panels can hold every value: false for Q4_0 with a finite |d| of 8192 or
// more, whose -8 d is no half.
bool FitsPanels(WeightType type, const uint8_t* data, int64_t rows, int64_t cols);

// out[0..cols) = row `row` of packed panels, dequantised: Q4_1 fma(float(q), d, m), Q8_0
// float(q) * d, Q4_K fma(float(q), d * scale, -(dmin * min)).
void UnpackRow(WeightType type, const uint8_t* panels, int64_t row, int64_t cols,
               float* out);

}  // namespace renga
