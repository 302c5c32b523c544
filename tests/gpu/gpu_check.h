// What renga_gpu_check does, command by command. Each writes its results to `out` line by
// line as they come, so that a run that is cut short leaves what it has.
//
// Thread safety: none.

#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "backend/device.h"
#include "renga/backend.h"
#include "renga/status.h"

namespace renga::test {

struct GpuCheckOptions {
  std::string command;
  std::string device = "cuda:0";  // cpu | cuda:N | emulated, where that is linked.
  std::string out;                // Empty: standard output.
  std::string family;             // kernels: one alone. speed: a part of the case's name.
  std::string size = "small";     // kernels: small | large.
  std::string model;
  std::string tokens;  // A file of int32.
  std::string kv = "f16";
  int32_t prefill = 256;  // logits: so many tokens in one step, the others one by one.
  bool row_invariant = true;
  bool graphs = true;
};

StatusOr<GpuCheckOptions> ParseGpuCheck(int argc, char** argv);

// The device of that name, and a backend on it.
StatusOr<std::unique_ptr<Device>> MakeCheckDevice(const std::string& name);
StatusOr<std::unique_ptr<Backend>> MakeCheckBackend(const GpuCheckOptions& options);

// Standard output, or a file that is appended to, line by line.
class ResultFile {
 public:
  static StatusOr<ResultFile> Open(const std::string& path);
  ResultFile(ResultFile&& other) noexcept;
  ResultFile& operator=(ResultFile&&) = delete;
  ~ResultFile();

  void Line(const std::string& text);

 private:
  explicit ResultFile(FILE* file) : file_(file) {}
  FILE* file_;
};

// Each returns FailedPrecondition if something that it checked is wrong.

// All Check<Family> of tests/cuda: "family,name,error,bound,ok,detail".
Status CheckKernels(const GpuCheckOptions& options);
// Logits of every token of a file, f32 [tokens][vocab], teacher-forced.
Status WriteLogits(const GpuCheckOptions& options);
// Times of the stated cases: "name,us,gb_per_s,gflop_per_s,bytes,flops".
Status MeasureSpeed(const GpuCheckOptions& options);
// The stated cases and all kernels as JSON, one object a line; needs no device.
Status PrintShapes(const GpuCheckOptions& options);
// Device memory before, loaded, serving: one JSON line.
Status ReportMemory(const GpuCheckOptions& options);

}  // namespace renga::test
