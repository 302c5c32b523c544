// How a CUDA kernel is named and launched, for host code.
//
// Each family of kernels (<family>.h) has the arguments of its kernels, one POD struct
// each, and functions that say with which shape to launch them; the bodies are templates
// over a context in <family>.cuh. The same text runs under nvcc (<family>.cu) and under
// the SIMT emulator of tests/simt.
//
// Rule for all kernels: what changes from step to step is read from device memory (counts
// too: a grid may be larger than the work, whole blocks then return). So a captured graph
// can be replayed with other rows, lengths and pages.

#pragma once

#include <stdint.h>

namespace renga::cuda {

// Each family has a hundred: weights and products 100, rows and pages 200, attention 300,
// sampling 400.
enum class KernelId : int32_t {};

struct LaunchShape {
  int32_t grid_x = 1;
  int32_t grid_y = 1;
  int32_t grid_z = 1;
  int32_t threads = 0;       // Of a block, in one dimension; a multiple of 32.
  int32_t shared_bytes = 0;  // Dynamic shared memory; there is no other.
};

struct KernelLaunch {
  KernelId kernel{};
  LaunchShape shape;
};

// What the runtime has to know of a compiled kernel.
struct KernelEntry {
  KernelId kernel{};
  const char* name = nullptr;   // "kRmsNorm"
  const void* entry = nullptr;  // For cudaLaunchKernel.
  int32_t threads = 0;
  int32_t args_bytes = 0;
};

struct KernelEntries {
  const KernelEntry* first = nullptr;
  int32_t count = 0;
};

// Defined in the .cu files, one per family.
KernelEntries ProductKernels();
KernelEntries RowKernels();
KernelEntries AttentionKernels();
KernelEntries SamplingKernels();

// The largest dynamic shared memory of a block on all our architectures (sm_86 and sm_89:
// 99 KiB); above 48 KiB the runtime has to be asked.
constexpr int32_t kMaxSharedBytes = 99 * 1024;

constexpr int32_t DivideUp(int64_t n, int64_t unit) {
  return static_cast<int32_t>((n + unit - 1) / unit);
}

}  // namespace renga::cuda
