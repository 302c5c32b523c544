// The command line of renga_gpu_check, its device and its result file.

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "backend/cpu_backend.h"
#include "backend/cuda_backend.h"
#include "backend/cuda_device.h"
#include "base/status_macros.h"
#include "tests/gpu/gpu_check.h"
#ifdef RENGA_WITH_SIMT
#include "tests/cuda/emulated/emulated_kernels.h"
#include "tests/simt/simt_device.h"
#endif

namespace renga::test {

StatusOr<GpuCheckOptions> ParseGpuCheck(int argc, char** argv) {
  GpuCheckOptions options;
  const std::map<std::string, std::string*> texts = {
      {"--device", &options.device}, {"--out", &options.out},
      {"--family", &options.family}, {"--size", &options.size},
      {"--model", &options.model},   {"--tokens", &options.tokens},
      {"--kv", &options.kv}};
  const std::map<std::string, bool*> switches = {
      {"--row-invariant", &options.row_invariant}, {"--graphs", &options.graphs}};
  if (argc > 1) options.command = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (i + 1 == argc) return InvalidArgument(word, "needs a value");
    const std::string value = argv[++i];
    if (const auto text = texts.find(word); text != texts.end()) {
      *text->second = value;
    } else if (const auto on = switches.find(word); on != switches.end()) {
      *on->second = value != "0";
    } else if (word == "--prefill") {
      options.prefill = std::atoi(value.c_str());
    } else {
      return InvalidArgument(word, "is unknown");
    }
  }
  if (options.size != "small" && options.size != "large") {
    return InvalidArgument("--size", "must be small or large");
  }
  if (options.prefill < 1) return InvalidArgument("--prefill", "must be at least 1");
  return options;
}

StatusOr<std::unique_ptr<Device>> MakeCheckDevice(const std::string& name) {
#ifdef RENGA_WITH_SIMT
  if (name == "emulated") {
    return std::unique_ptr<Device>(std::make_unique<SimtDevice>(AllEmulatedKernels()));
  }
#endif
  constexpr std::string_view kCuda = "cuda:";
  if (name.rfind(kCuda, 0) != 0) {
    return InvalidArgument("--device", "'" + name + "' is no device of this program");
  }
  return MakeCudaDevice(std::atoi(name.c_str() + kCuda.size()));
}

StatusOr<std::unique_ptr<Backend>> MakeCheckBackend(const GpuCheckOptions& options) {
  if (options.device == "cpu") return MakeCpuBackend({});
  RENGA_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, MakeCheckDevice(options.device));
  return MakeCudaBackend(std::move(device), {.row_invariant = options.row_invariant,
                                             .graphs = options.graphs});
}

StatusOr<ResultFile> ResultFile::Open(const std::string& path) {
  if (path.empty()) return ResultFile(stdout);
  FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return InvalidArgument("--out", "cannot be written");
  return ResultFile(file);
}

ResultFile::ResultFile(ResultFile&& other) noexcept
    : file_(std::exchange(other.file_, nullptr)) {}

ResultFile::~ResultFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
}

void ResultFile::Line(const std::string& text) {
  std::fprintf(file_, "%s\n", text.c_str());
  std::fflush(file_);
}

}  // namespace renga::test
