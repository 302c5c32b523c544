#include "tests/simt/simt.h"

#include <cstdint>
#include <string>

#include "tests/simt/machine.h"

namespace renga::test {
namespace {

constexpr int32_t kMostThreads = 1024;
constexpr int32_t kMostGridX = INT32_MAX;
constexpr int32_t kMostGridYz = 65535;

}  // namespace

std::string SimtReport::ToString() const {
  std::string text = where.empty() ? what : where + ": " + what;
  if (!detail.empty()) text += " [" + detail + "]";
  text += " (" + kernel + ", block " + std::to_string(block[0]) + "," +
          std::to_string(block[1]) + "," + std::to_string(block[2]) + " thread " +
          std::to_string(thread);
  if (times > 1) text += ", " + std::to_string(times) + " times";
  return text + ")";
}

std::string SimtRun::ToString() const {
  std::string text;
  for (const SimtReport& report : reports) {
    if (!text.empty()) text += "\n";
    text += report.ToString();
  }
  return text;
}

std::string ValidateLaunch(const EmulatedKernel& kernel, const cuda::LaunchShape& shape) {
  const auto outside = [](int32_t n, int32_t most) { return n < 1 || n > most; };
  if (outside(shape.grid_x, kMostGridX) || outside(shape.grid_y, kMostGridYz) ||
      outside(shape.grid_z, kMostGridYz)) {
    return "grid " + std::to_string(shape.grid_x) + " x " + std::to_string(shape.grid_y) +
           " x " + std::to_string(shape.grid_z) +
           " is outside of 1..2^31-1 x 65535 x 65535";
  }
  if (outside(shape.threads, kMostThreads) || shape.threads % cuda::kWarp != 0) {
    return std::to_string(shape.threads) + " threads: not whole warps, or more than 1024";
  }
  if (shape.threads != kernel.threads) {
    return std::to_string(shape.threads) + " threads, but the kernel is compiled for " +
           std::to_string(kernel.threads);
  }
  if (shape.shared_bytes < 0 || shape.shared_bytes > cuda::kMaxSharedBytes) {
    return std::to_string(shape.shared_bytes) + " bytes of shared memory are more than " +
           std::to_string(cuda::kMaxSharedBytes);
  }
  return "";
}

SimtRun RunKernel(const EmulatedKernel& kernel, const cuda::LaunchShape& shape,
                  const void* args, SimtMemory& memory, const SimtOptions& options) {
  const std::string wrong = ValidateLaunch(kernel, shape);
  if (wrong.empty()) {
    return SimtMachine::Instance().Run(kernel, shape, args, memory, options);
  }
  SimtRun run;
  SimtReport report;
  report.what = "launch: " + wrong;
  report.kernel = kernel.name;
  run.reports.push_back(report);
  return run;
}

}  // namespace renga::test
