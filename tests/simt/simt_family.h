// Turns a family's list of kernels (kernels/cuda/entry.cuh) into the table that the
// emulator runs them from:
//
//   #include "kernels/cuda/rows.cuh"
//   #include "tests/simt/simt_family.h"
//   RENGA_SIMT_FAMILY(RENGA_ROW_KERNELS, EmulatedRowKernels)
//
// Included by files that are compiled with hooks: nothing of std::.

#pragma once

#include <stdint.h>

#include "kernels/cuda/launch.h"
#include "tests/simt/simt_ctx.h"

namespace renga::test {

struct EmulatedKernel {
  cuda::KernelId id{};
  const char* name = nullptr;
  int32_t threads = 0;
  int32_t args_bytes = 0;
  void (*body)(SimtCtx& ctx, const void* args) = nullptr;
};

struct EmulatedKernels {
  const EmulatedKernel* first = nullptr;
  int32_t count = 0;
};

}  // namespace renga::test

#define RENGA_SIMT_ENTRY(id, Args, block_threads, least_blocks, body) \
  void Entry_##id(::renga::test::SimtCtx& ctx, const void* args) {    \
    body(ctx, *static_cast<const Args*>(args));                       \
  }

#define RENGA_SIMT_TABLE_ROW(id, Args, block_threads, least_blocks, body) \
  {id, #id, block_threads, static_cast<int32_t>(sizeof(Args)), &Entry_##id},

#define RENGA_SIMT_FAMILY(KERNELS, function)                                      \
  namespace renga::cuda {                                                         \
  namespace {                                                                     \
  KERNELS(RENGA_SIMT_ENTRY)                                                       \
  const ::renga::test::EmulatedKernel kTable[] = {KERNELS(RENGA_SIMT_TABLE_ROW)}; \
  }                                                                               \
  }                                                                               \
  namespace renga::test {                                                         \
  EmulatedKernels function() {                                                    \
    return {::renga::cuda::kTable,                                                \
            static_cast<int32_t>(sizeof(::renga::cuda::kTable) /                  \
                                 sizeof(::renga::cuda::kTable[0]))};              \
  }                                                                               \
  }
