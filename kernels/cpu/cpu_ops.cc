// Picks an op table by what the CPU and the operating system offer.

#include "kernels/cpu/cpu_ops.h"

#include <cpuid.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/same_products.h"

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
namespace amx {
void MatmulQ4_1(const MatmulArgs& args);
void MatmulQ4K(const MatmulArgs& args);
void MatmulQ8_0(const MatmulArgs& args);
}  // namespace amx

const char* const kCpuOpsName[kCpuOpsNames] = {"portable", "avx2", "avx512", "amx"};

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

// Whether the operating system saves all of these parts of the state (bits of XCR0).
bool SavesState(unsigned parts) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & bit_OSXSAVE) == 0) {
    return false;
  }
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & parts) == parts;
}

// Tiles and their int8 products, which Linux lends only to a process that asks; all of
// its threads may use them then.
bool HasAmx() {
  constexpr unsigned kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;
  constexpr unsigned kTileConfigState = 1u << 17, kTileDataState = 1u << 18;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!HasAvx512() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & kAmxTile) != 0 && (edx & kAmxInt8) != 0 &&
         SavesState(kTileConfigState | kTileDataState) &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Null where the CPU has no AMX, or its products are not those of AVX-512: a table that
// would answer wrongly is not offered.
const CpuOps* AmxOps() {
  static const CpuOps ops = [] {
    CpuOps table = avx512::kOps;
    table.name = "amx";
    table.matmul_q4_1 = amx::MatmulQ4_1;
    table.matmul_q4_k = amx::MatmulQ4K;
    table.matmul_q8_0 = amx::MatmulQ8_0;
    return table;
  }();
  static const bool works = HasAmx() && SameProducts(ops, avx512::kOps);
  return works ? &ops : nullptr;
}

}  // namespace

const CpuOps* FindCpuOps(const char* name) {
  if (strcmp(name, "portable") == 0) return &portable::kOps;
  if (strcmp(name, "avx2") == 0) return HasAvx2() ? &avx2::kOps : nullptr;
  if (strcmp(name, "avx512") == 0) return HasAvx512() ? &avx512::kOps : nullptr;
  if (strcmp(name, "amx") == 0) return AmxOps();
  return nullptr;
}

const CpuOps* BestCpuOps() {
  for (int i = kCpuOpsNames - 1; i >= 0; --i) {
    if (const CpuOps* ops = FindCpuOps(kCpuOpsName[i])) return ops;
  }
  return &portable::kOps;
}

}  // namespace renga
