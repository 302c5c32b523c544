// Which instruction sets this machine has, and their op tables.
//
// Thread safety: every function may be called from any thread.

#pragma once

#include "kernels/ops.h"

namespace renga {

// The table called `name` ("portable", "avx2", "avx512"), or nullptr if this CPU cannot
// run it or the name is unknown.
const CpuOps* FindCpuOps(const char* name);

// The best table this CPU can run.
const CpuOps* BestCpuOps();

// The names FindCpuOps knows, best last, whether this CPU can run them or not.
constexpr int kCpuOpsNames = 3;
extern const char* const kCpuOpsName[kCpuOpsNames];

// Weight layout of the file -> panels; once per load, the same for every table.
// Packs `rows` rows of `cols` values at `data` into ceil(rows / 32) panels at `panels`.
// REQUIRES: cols % 32 == 0 for the quantised types.
void PackPanels(WeightType type, const uint8_t* data, int64_t rows, int64_t cols,
                uint8_t* panels);

// out[0..cols) = row `row` of packed panels, dequantised: Q4_1 fma(float(q), d, m), Q8_0
// float(q) * d.
void UnpackRow(WeightType type, const uint8_t* panels, int64_t row, int64_t cols,
               float* out);

}  // namespace renga
