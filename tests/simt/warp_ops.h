// What the operations of a warp compute, once its 32 lanes are there.
//
// Thread safety: plain functions.

#pragma once

#include "tests/simt/machine.h"

namespace renga::test {

// Shuffles and ballots: thread.result of all lanes. The lane that asked for a lane that
// does not exist, or null.
const SimtThread* Exchange(SimtThread* const (&lanes)[cuda::kWarp]);

// ldmatrix.x4 from the lanes' rows to their registers.
void LoadMatrices(SimtThread* const (&lanes)[cuda::kWarp], bool trans);

// c += a . b, mma.m16n8k16: products and sum in double, rounded once. (Hardware rounds in
// an order and a way that nobody specifies.)
void Multiply(SimtThread* const (&lanes)[cuda::kWarp], bool bfloat);

}  // namespace renga::test
