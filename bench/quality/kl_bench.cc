// Mean KL of renga's predictions to those of a base model that llama-perplexity wrote
// (kl_base_file.h), on the same tokens and windows.
//
//   kl_bench --model FILE.gguf --base FILE [--precision fast|high] [--coarse T]
//            [--dtype f16|f32|int8] [--isa auto] [--threads 0] [--windows 0]
//
// --coarse: in place of the threshold that --precision fast has: a block of 32
// activations keeps 8 bits if its largest value squared is below T times the row's mean
// of that (inf: all blocks). --windows: only so many; 0: all.
//
// Prints one line for each window, "window 3 0.001234", and the mean over all positions
// with its standard error.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu_backend.h"
#include "backend/cpu_backend_impl.h"
#include "base/status_macros.h"
#include "bench/quality/kl_base_file.h"
#include "kernels/cpu/cpu_ops.h"
#include "quantize/model_scorer.h"
#include "quantize/quality.h"

namespace renga {
namespace {

struct Arguments {
  std::string model;
  std::string base;
  CpuBackendOptions device = {.precision = "fast"};
  std::optional<float> coarse;
  KvDtype dtype = KvDtype::kF16;
  int32_t windows = 0;
};

Status ParseOne(const std::string& word, const std::string& value, Arguments& arguments) {
  if (word == "--model") {
    arguments.model = value;
  } else if (word == "--base") {
    arguments.base = value;
  } else if (word == "--precision") {
    arguments.device.precision = value;
  } else if (word == "--coarse") {
    arguments.coarse = std::strtof(value.c_str(), nullptr);
  } else if (word == "--isa") {
    arguments.device.isa = value;
  } else if (word == "--threads") {
    arguments.device.threads = std::atoi(value.c_str());
  } else if (word == "--windows") {
    arguments.windows = std::atoi(value.c_str());
  } else if (word == "--dtype") {
    for (const KvDtype dtype : {KvDtype::kF32, KvDtype::kF16, KvDtype::kInt8}) {
      if (value != KvDtypeName(dtype)) continue;
      arguments.dtype = dtype;
      return OkStatus();
    }
    return InvalidArgument(word, "must be f16, f32 or int8");
  } else {
    return InvalidArgument(word, "is unknown");
  }
  return OkStatus();
}

StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return InvalidArgument(argv[i], "needs a value");
    RENGA_RETURN_IF_ERROR(ParseOne(argv[i], argv[i + 1], arguments));
  }
  if (arguments.model.empty()) return InvalidArgument("--model", "is required");
  if (arguments.base.empty()) return InvalidArgument("--base", "is required");
  return arguments;
}

StatusOr<std::unique_ptr<Backend>> MakeBackend(const Arguments& arguments) {
  if (!arguments.coarse.has_value()) return MakeCpuBackend(arguments.device);
  const std::string& isa = arguments.device.isa;
  const CpuOps* ops = isa == "auto" ? BestCpuOps() : FindCpuOps(isa.c_str());
  if (ops == nullptr) return InvalidArgument("--isa", "this CPU has no " + isa);
  int threads = arguments.device.threads;
  if (threads <= 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  return std::unique_ptr<Backend>(
      std::make_unique<CpuBackend>(*ops, std::max(threads, 1), *arguments.coarse));
}

// The scored positions of one window; the base's predictions follow in its file.
Status MeasureWindow(ModelScorer& model, KlBaseFile& base, std::vector<TokenId> tokens,
                     QualityTotals& totals) {
  if (model.tokenizer().add_bos_token()) tokens[0] = model.tokenizer().bos_token_id();
  BasePrediction prediction;
  const std::span<const TokenId> window = tokens;
  const int32_t end = base.first_scored() + base.scored();
  for (int32_t first = 0; first < end; first += ModelScorer::kSliceRows) {
    const int32_t rows = std::min(ModelScorer::kSliceRows, end - first);
    const int32_t scored = std::clamp(base.first_scored() - first, 0, rows);
    RENGA_RETURN_IF_ERROR(model.Compute(
        window.subspan(static_cast<size_t>(first), static_cast<size_t>(rows)), first,
        scored));
    for (int32_t row = scored; row < rows; ++row) {
      RENGA_RETURN_IF_ERROR(base.Next(prediction));
      RENGA_ASSIGN_OR_RETURN(const std::span<const float> logits,
                             model.Logits(row - scored));
      totals.Add({.kl = KlToBase(prediction, logits)});
    }
  }
  return OkStatus();
}

Status Run(const Arguments& arguments) {
  RENGA_ASSIGN_OR_RETURN(KlBaseFile base, KlBaseFile::Open(arguments.base));
  RENGA_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(arguments));
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<ModelScorer> model,
                         ModelScorer::Open(arguments.model, std::move(backend),
                                           arguments.dtype, base.window()));
  if (model->vocab_size() != base.vocab() || model->window() < base.window()) {
    return InvalidArgument("--base", "has another vocabulary or a longer window");
  }
  const int32_t windows = arguments.windows > 0
                              ? std::min(arguments.windows, base.windows())
                              : base.windows();
  QualityTotals all;
  for (int32_t i = 0; i < windows; ++i) {
    const auto tokens = base.Tokens(i);
    const double before = all.mean_kl() * static_cast<double>(all.positions());
    RENGA_RETURN_IF_ERROR(
        MeasureWindow(*model, base, {tokens.begin(), tokens.end()}, all));
    const double after = all.mean_kl() * static_cast<double>(all.positions());
    std::printf("window %d %.6f\n", i, (after - before) / base.scored());
    std::fflush(stdout);
  }
  std::printf("mean %.6f +- %.6f over %lld positions, largest %.4f\n", all.mean_kl(),
              all.kl_standard_error(), static_cast<long long>(all.positions()),
              all.largest_kl());
  return OkStatus();
}

int Main(int argc, char** argv) {
  const StatusOr<Arguments> arguments = Parse(argc, argv);
  const Status status = arguments.ok() ? Run(*arguments) : arguments.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "kl_bench: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace renga

int main(int argc, char** argv) { return renga::Main(argc, argv); }
