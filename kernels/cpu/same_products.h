// A check at the start: whether two op tables multiply quantised weights alike.
//
// Thread safety: may be called from any thread.

#pragma once

#include "kernels/ops.h"

namespace renga {

// Compares the products of 25 rows, fine and coarse blocks, with a panel of each
// quantised type, bit by bit. Takes some microseconds.
bool SameProducts(const CpuOps& a, const CpuOps& b);

}  // namespace renga
