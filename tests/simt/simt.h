// A SIMT emulator: runs the kernels of kernels/cuda on the CPU, thread by thread, and
// reports what a GPU would let pass in silence.
//
// Each CUDA thread is a fiber; a block runs at a time. A lane runs until it waits (at a
// Barrier, in an operation of its warp) or is done. Everything with a meaning for a warp
// or a block goes through SimtCtx; plain loads and stores of a kernel come here through
// the compiler's hooks (tsan_hooks.cc), where the kernel was compiled with them.
//
// Found: barriers, shuffles and mma in divergent code; races in shared memory, between
// blocks, and between threads of a block in global memory; cp.async that nobody awaited;
// out of bounds, wild, misaligned and uninitialised accesses; launches beyond the limits.
// Not found: effects of the memory model between blocks, uninitialised registers, the
// hardware's rounding inside mma. See README.md.
//
// Thread safety: one launch at a time in a thread; launches on different SimtMemory in
// different threads are independent.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/simt/simt_family.h"
#include "tests/simt/simt_memory.h"

namespace renga::test {

struct SimtOptions {
  bool checks = true;    // Memory: bounds, initialised, races. Divergence always is.
  bool counters = true;  // SimtRun::counters.
  bool ranges = false;   // SimtRun::reads and writes.
  // Order of blocks, warps and lanes: 0 ascending, else shuffled. A right kernel gives
  // the same bits with every seed.
  uint32_t seed = 0;
  // Shared memory is watched by pairs of bytes; kernels whose lanes write single bytes
  // side by side need single ones.
  bool single_bytes = false;
  int64_t most_steps = int64_t{1} << 28;     // Resumed lanes of a launch: then it hangs.
  int64_t most_accesses = int64_t{1} << 26;  // Of a lane between two waits: it spins.
};

// One thing found; the same thing at the same place is reported once.
struct SimtReport {
  std::string where;   // "attention.cuh:64"; empty for a launch.
  std::string what;    // "shared race: read after write"
  std::string detail;  // "with thread 10"; may be empty.
  std::string kernel;
  int32_t block[3] = {0, 0, 0};
  int32_t thread = 0;
  int64_t times = 1;

  std::string ToString() const;
};

struct Traffic {
  int64_t requests = 0;          // Instructions of a warp.
  int64_t sectors = 0;           // 32 bytes; each request counts those it touches.
  int64_t bytes = 0;             // What lanes asked for.
  int64_t distinct_sectors = 0;  // Sectors touched at all: what memory has to move.
};
struct BufferTraffic {
  Traffic read;
  Traffic written;
};

// What one launch did. A proxy for its speed: the ratios are what tests hold.
struct SimtCounters {
  BufferTraffic global;
  std::map<std::string, BufferTraffic> buffers;  // By SimtMemory's names.
  int64_t shared_requests = 0;
  int64_t shared_wavefronts = 0;  // Passes through the 32 banks.
  int64_t ideal_wavefronts = 0;   // Without conflicts.
  int64_t products = 0;           // mma
  int64_t steps = 0;              // Resumed lanes.

  double WavefrontRatio() const {
    return ideal_wavefronts == 0 ? 1.0
                                 : static_cast<double>(shared_wavefronts) /
                                       static_cast<double>(ideal_wavefronts);
  }
};

// [begin, begin + bytes), inside one buffer.
struct MemoryRange {
  const char* begin = nullptr;
  int64_t bytes = 0;
};

struct SimtRun {
  std::vector<SimtReport> reports;  // Empty: the launch was right.
  SimtCounters counters;
  std::vector<MemoryRange>
      reads;  // Merged, ascending; to two bytes. Atomics are in both.
  std::vector<MemoryRange> writes;

  bool ok() const { return reports.empty(); }
  std::string ToString() const;  // The reports, one a line.
};

// Runs all blocks. `args` has kernel.args_bytes bytes. After a fatal report (out of
// bounds, divergence) the launch ends.
SimtRun RunKernel(const EmulatedKernel& kernel, const cuda::LaunchShape& shape,
                  const void* args, SimtMemory& memory, const SimtOptions& options = {});

// Empty, or what of the shape no GPU of ours accepts.
std::string ValidateLaunch(const EmulatedKernel& kernel, const cuda::LaunchShape& shape);

}  // namespace renga::test
