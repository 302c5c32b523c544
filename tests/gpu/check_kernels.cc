// `renga_gpu_check kernels`: the cases that the tests run under the emulator, on a
// device.

#include <cstdio>
#include <string>

#include "base/status_macros.h"
#include "tests/cuda/attention_cases.h"
#include "tests/cuda/product_cases.h"
#include "tests/cuda/rows_cases.h"
#include "tests/cuda/sampling_cases.h"
#include "tests/gpu/gpu_check.h"

namespace renga::test {
namespace {

struct Family {
  const char* name;
  CheckResults (*check)(Device&, CheckSize);
};
constexpr Family kFamilies[] = {
    {"product", CheckProduct},     {"product", CheckEmbed},
    {"product", CheckDequantise},  {"rows", CheckRows},
    {"rows", CheckPages},          {"rows", CheckChunkPool},
    {"attention", CheckAttention}, {"sampling", CheckSampling}};

std::string CsvText(std::string text) {
  for (char& c : text) {
    if (c == '"') c = '\'';
    if (c == '\n') c = ' ';
  }
  return '"' + text + '"';
}

}  // namespace

Status CheckKernels(const GpuCheckOptions& options) {
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                         MakeCheckDevice(options.device));
  RENGA_ASSIGN_OR_RETURN(ResultFile out, ResultFile::Open(options.out));
  const CheckSize size = options.size == "large" ? CheckSize::kLarge : CheckSize::kSmall;
  int64_t checks = 0;
  int64_t wrong = 0;
  for (const Family& family : kFamilies) {
    if (!options.family.empty() && options.family != family.name) continue;
    for (const CheckResult& result : family.check(*device, size)) {
      ++checks;
      wrong += result.ok ? 0 : 1;
      char numbers[96];
      std::snprintf(numbers, sizeof numbers, ",%.3e,%.3e,%s,", result.error, result.bound,
                    result.ok ? "ok" : "WRONG");
      out.Line(std::string(family.name) + ',' + result.name + numbers +
               CsvText(result.detail));
    }
  }
  if (checks == 0) return InvalidArgument("--family", "is no family");
  if (wrong == 0) return OkStatus();
  return FailedPrecondition(std::to_string(wrong) + " of " + std::to_string(checks) +
                            " checks are wrong");
}

}  // namespace renga::test
