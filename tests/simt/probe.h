// Runs a kernel of probe_kernels.cc on vectors of words.
//
// Thread safety: none.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/simt/probe_kernels.h"
#include "tests/simt/simt.h"

namespace renga::test {

// By its name, "kSum".
inline const EmulatedKernel& ProbeKernel(const std::string& name) {
  const EmulatedKernels all = ProbeKernels();
  for (int32_t i = 0; i < all.count; ++i) {
    if (all.first[i].name == name) return all.first[i];
  }
  std::abort();
}

struct Probe {
  std::string kernel;
  std::vector<uint32_t> in{};
  std::vector<uint32_t> more{};
  std::vector<uint32_t> out{};  // At first; then what the kernel wrote.
  int32_t n = 0;
  int32_t blocks = 1;
  SimtOptions options{};

  SimtRun Run() {
    SimtMemory memory;
    const auto upload = [&memory](const std::vector<uint32_t>& words, const char* name) {
      const int64_t bytes = static_cast<int64_t>(words.size() * sizeof(uint32_t));
      void* to = memory.Allocate(bytes, name);
      memory.Write(to, words.data(), bytes);
      return static_cast<uint32_t*>(to);
    };
    const ProbeArgs args{upload(in, "in"), upload(more, "more"), upload(out, "out"), n};
    const EmulatedKernel& probe = ProbeKernel(kernel);
    const SimtRun run =
        RunKernel(probe, {blocks, 1, 1, probe.threads, 32768}, &args, memory, options);
    out.assign(args.out, args.out + out.size());
    return run;
  }
};

}  // namespace renga::test
