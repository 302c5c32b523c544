// `renga_gpu_check speed` and `shapes`: the stated cases, timed or described.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "tests/cuda/device_case.h"
#include "tests/gpu/gpu_check.h"
#include "tests/gpu/stated_cases.h"

namespace renga::test {
namespace {

using Seconds = std::chrono::duration<double>;

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// Times launches between two waits for the stream: first a few to see how many fill
// `kAim`, then the median of five rounds of so many.
class Timer : public StatedCases {
 public:
  Timer(Device& device, StreamId stream, const std::string& wanted, ResultFile& out)
      : device_(device), stream_(stream), wanted_(wanted), out_(out) {}

  void Visit(StatedCase stated) override {
    if (stated.name.find(wanted_) == std::string::npos) return;
    const double first = Round(stated, 4);
    const int64_t launches = std::clamp(
        static_cast<int64_t>(kAim / std::max(first, 1e-7)), int64_t{4}, int64_t{2000});
    std::vector<double> rounds;
    for (int i = 0; i < 5; ++i) rounds.push_back(Round(stated, launches));
    std::sort(rounds.begin(), rounds.end());
    const double seconds = rounds[2];
    out_.Line(stated.name + ',' + Number(seconds * 1e6) + ',' +
              Number(stated.bytes / seconds / 1e9) + ',' +
              Number(stated.flops / seconds / 1e9) + ',' + Number(stated.bytes) + ',' +
              Number(stated.flops));
  }

 private:
  static constexpr double kAim = 0.02;  // Seconds of a round.

  // Seconds of one launch.
  double Round(const StatedCase& stated, int64_t launches) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < launches; ++i) {
      const std::vector<std::byte>& args =
          stated.args[static_cast<size_t>(i) % stated.args.size()];
      Must(device_.Launch(stated.launch, args.data(), args.size(), stream_));
    }
    Must(device_.Synchronize(stream_));
    const Seconds all = std::chrono::steady_clock::now() - start;
    return all.count() / static_cast<double>(launches);
  }

  Device& device_;
  const StreamId stream_;
  const std::string wanted_;
  ResultFile& out_;
};

class Shapes : public StatedCases {
 public:
  explicit Shapes(ResultFile& out) : out_(out) {}

  void Visit(StatedCase stated) override {
    const cuda::LaunchShape& shape = stated.launch.shape;
    out_.Line("{\"case\":\"" + stated.name +
              "\",\"kernel\":" + std::to_string(static_cast<int>(stated.launch.kernel)) +
              ",\"grid\":[" + std::to_string(shape.grid_x) + ',' +
              std::to_string(shape.grid_y) + ',' + std::to_string(shape.grid_z) +
              "],\"threads\":" + std::to_string(shape.threads) + ",\"shared_bytes\":" +
              std::to_string(shape.shared_bytes) + ",\"bytes\":" + Number(stated.bytes) +
              ",\"flops\":" + Number(stated.flops) +
              ",\"tensor_cores\":" + (stated.tensor_cores ? "true" : "false") + '}');
  }

 private:
  ResultFile& out_;
};

#ifdef RENGA_WITH_CUDA
void PrintKernels(ResultFile& out) {
  for (const cuda::KernelEntries entries :
       {cuda::ProductKernels(), cuda::RowKernels(), cuda::AttentionKernels(),
        cuda::SamplingKernels()}) {
    for (int32_t i = 0; i < entries.count; ++i) {
      const cuda::KernelEntry& entry = entries.first[i];
      out.Line("{\"id\":" + std::to_string(static_cast<int>(entry.kernel)) +
               ",\"name\":\"" + entry.name +
               "\",\"threads\":" + std::to_string(entry.threads) + '}');
    }
  }
}
#endif

}  // namespace

Status MeasureSpeed(const GpuCheckOptions& options) {
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                         MakeCheckDevice(options.device));
  RENGA_ASSIGN_OR_RETURN(const StreamId stream, device->CreateStream());
  RENGA_ASSIGN_OR_RETURN(ResultFile out, ResultFile::Open(options.out));
  CaseMemory memory(*device, stream);
  Timer timer(*device, stream, options.family, out);
  ForEachStatedCase(memory, timer);
  return OkStatus();
}

Status PrintShapes(const GpuCheckOptions& options) {
  RENGA_ASSIGN_OR_RETURN(ResultFile out, ResultFile::Open(options.out));
#ifdef RENGA_WITH_CUDA
  PrintKernels(out);
#endif
  CaseMemory none;
  Shapes shapes(out);
  ForEachStatedCase(none, shapes);
  return OkStatus();
}

}  // namespace renga::test
