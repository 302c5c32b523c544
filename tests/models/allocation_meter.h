// Counts what operator new hands out in this test program, by replacing it. Linked only
// where a test asks (target test_allocations).
//
// Thread safety: any thread allocates; the counters are for tests that compare before and
// after.

#pragma once

#include <cstddef>
#include <cstdint>

namespace renga::test {

// Calls of operator new since the program began.
int64_t AllocationCount();

// Largest single allocation since the last reset, in bytes.
size_t LargestAllocation();
void ResetLargestAllocation();

}  // namespace renga::test
