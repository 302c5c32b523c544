// Kernels with one mistake each, and the same kernels without it.
//
// Each is a template <bool kBroken>, in broken_*_kernels.cc; the line where the emulator
// must see the mistake ends with "// FOUND".

#pragma once

#include <stdint.h>

#include "tests/simt/probe_kernels.h"
#include "tests/simt/simt_family.h"

namespace renga::test {

struct BrokenKernel {
  EmulatedKernel broken;
  EmulatedKernel right;
  const char* what = nullptr;    // The report's text.
  const char* detail = nullptr;  // And what its detail holds.
  bool hooks = false;            // Seen through plain loads and stores only.
  const char* file = nullptr;
};

// All run with 2 blocks of 64 threads, 4096 bytes of shared memory and ProbeArgs: `in`
// holds kBrokenWords words, `more` as many, `out` as many that were never written.
inline constexpr int32_t kBrokenWords = 256;
struct BrokenKernels {
  const BrokenKernel* first = nullptr;
  int32_t count = 0;
};
BrokenKernels BrokenDivergenceKernels();
BrokenKernels BrokenSharedKernels();
BrokenKernels BrokenGlobalKernels();

template <void (*kBody)(SimtCtx&, const ProbeArgs&)>
void BrokenEntry(SimtCtx& ctx, const void* args) {
  kBody(ctx, *static_cast<const ProbeArgs*>(args));
}

}  // namespace renga::test

#define RENGA_BROKEN(name, what, detail, hooks)                                        \
  {                                                                                    \
    {cuda::KernelId{1}, #name, 64, sizeof(ProbeArgs), &BrokenEntry<&name<true>>},      \
        {cuda::KernelId{2}, #name, 64, sizeof(ProbeArgs), &BrokenEntry<&name<false>>}, \
        what, detail, hooks, __FILE__                                                  \
  }
