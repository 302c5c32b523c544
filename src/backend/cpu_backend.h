// The CPU as a device: fused steps over a thread pool and the op table of one instruction
// set, chosen once.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

struct CpuBackendOptions {
  std::string isa = "auto";  // auto | portable | avx2 | avx512 | amx.
  int32_t threads = 0;       // The calling thread included; 0: all cores.
  // How many bits the activations of quantised weights have: high: 16; fast: 8 but for
  // the blocks of 32 that stand out of their row. Another numerics id, other bits.
  std::string precision = "high";
};

// InvalidArgument with the field (device.isa, device.threads, device.precision) that
// cannot be served here.
StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace renga
