// Checks and measures the CUDA engine without any test framework, for machines that have
// a GPU, a compiler and nothing else. tests/gpu/run_gpu_checks.sh drives it.
//
//   renga_gpu_check kernels [--family NAME] [--size small|large]
//   renga_gpu_check logits --model F --tokens T --out O [--kv f16] [--prefill 256]
//   renga_gpu_check speed [--family PART_OF_A_NAME]
//   renga_gpu_check shapes
//   renga_gpu_check memory --model F
//     --device cuda:0|cpu|emulated   --out FILE   --row-invariant 1   --graphs 1
//
// Ends with 0; 1 if something is wrong; 2 if it could not be checked.

#include "tests/gpu/gpu_check.h"

#include <cstdio>
#include <functional>
#include <map>

#include "base/status_macros.h"

namespace renga::test {
namespace {

Status Run(int argc, char** argv) {
  RENGA_ASSIGN_OR_RETURN(const GpuCheckOptions options, ParseGpuCheck(argc, argv));
  using Command = Status (*)(const GpuCheckOptions&);
  const std::map<std::string, Command> commands = {{"kernels", CheckKernels},
                                                   {"logits", WriteLogits},
                                                   {"speed", MeasureSpeed},
                                                   {"shapes", PrintShapes},
                                                   {"memory", ReportMemory}};
  const auto found = commands.find(options.command);
  if (found == commands.end()) {
    return InvalidArgument("command",
                           "is none of kernels, logits, speed, shapes, memory");
  }
  return found->second(options);
}

}  // namespace
}  // namespace renga::test

int main(int argc, char** argv) {
  const renga::Status status = renga::test::Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "renga_gpu_check: %s\n", status.ToString().c_str());
  return status.code() == renga::StatusCode::kFailedPrecondition ? 1 : 2;
}
