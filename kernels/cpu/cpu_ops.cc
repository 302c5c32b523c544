// Picks an op table by what the CPU and the operating system offer.

#include "kernels/cpu/cpu_ops.h"

#include <cpuid.h>
#include <string.h>

namespace renga {

namespace portable {
extern const CpuOps kOps;
}
namespace avx2 {
extern const CpuOps kOps;
}
namespace avx512 {
extern const CpuOps kOps;
}

const char* const kCpuOpsName[kCpuOpsNames] = {"portable", "avx2", "avx512"};

namespace {

// Not among the names that every compiler's __builtin_cpu_supports knows.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// The builtins also ask whether the operating system saves the registers.
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}

}  // namespace

const CpuOps* FindCpuOps(const char* name) {
  if (strcmp(name, "portable") == 0) return &portable::kOps;
  if (strcmp(name, "avx2") == 0) return HasAvx2() ? &avx2::kOps : nullptr;
  if (strcmp(name, "avx512") == 0) return HasAvx512() ? &avx512::kOps : nullptr;
  return nullptr;
}

const CpuOps* BestCpuOps() {
  for (int i = kCpuOpsNames - 1; i >= 0; --i) {
    if (const CpuOps* ops = FindCpuOps(kCpuOpsName[i])) return ops;
  }
  return &portable::kOps;
}

}  // namespace renga
