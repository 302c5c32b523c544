#include "app/quality_report.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "app/backend_factory.h"
#include "app/progress_bar.h"
#include "backend/thread_pool.h"
#include "base/status_macros.h"
#include "formats/mapped_file.h"

namespace renga {
namespace {

constexpr std::streamoff kMaxTextBytes = 64 << 20;

StatusOr<std::string> ReadText(const std::string& path) {
  if (path.empty()) return std::string(SampleText());
  const auto refuse = [&path](const char* why) {
    return InvalidArgument("text", BaseName(path) + ": " + why);
  };
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return refuse("cannot be read");
  if (file.tellg() > kMaxTextBytes) return refuse("is longer than 64 MiB");
  file.seekg(0);
  std::string text((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  if (file.bad() || text.empty()) return refuse("is empty or cannot be read");
  return text;
}

StatusOr<KvDtype> ParseKvDtype(const std::string& word) {
  for (const KvDtype dtype :
       {KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16, KvDtype::kInt8}) {
    if (word == KvDtypeName(dtype)) return dtype;
  }
  return InvalidArgument("kv.dtype", "must be f16, f32, bf16 or int8");
}

StatusOr<std::unique_ptr<ModelScorer>> OpenModel(const std::string& path,
                                                 const DeviceSettings& device,
                                                 KvDtype dtype) {
  RENGA_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeDefaultBackend(device));
  return ModelScorer::Open(path, std::move(backend), dtype, kQualityWindow);
}

void PrintLine(std::ostream& out, const char* what, const std::string& value) {
  char line[160];
  std::snprintf(line, sizeof line, "  %-28s%s\n", what, value.c_str());
  out << line;
}

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

}  // namespace

int WorkerThreads(const DeviceSettings& settings) {
  return ThreadPool::CountFor(settings.threads);
}

StatusOr<TextQuality> MeasureQuality(const QualityRequest& request, std::ostream& err) {
  RENGA_ASSIGN_OR_RETURN(const KvDtype dtype, ParseKvDtype(request.kv_dtype));
  RENGA_ASSIGN_OR_RETURN(const std::string text, ReadText(request.text_file));
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<ModelScorer> model,
                         OpenModel(request.model, request.device, dtype));
  std::unique_ptr<ModelScorer> reference;
  if (!request.reference.empty()) {
    DeviceSettings exact = request.device;
    exact.name = "cpu";
    exact.precision = "high";
    RENGA_ASSIGN_OR_RETURN(reference, OpenModel(request.reference, exact, KvDtype::kF16));
  }
  constexpr int64_t kParts = 1000;
  ProgressBar bar(err, "Measuring", kParts, request.progress);
  StatusOr<TextQuality> quality =
      MeasureText(*model, reference.get(), text, WorkerThreads(request.device),
                  [&](int64_t done, int64_t total) {
                    bar.Update(done * kParts / total);
                    return request.stop == nullptr || !*request.stop;
                  });
  if (quality.ok()) bar.Finish();
  return quality;
}

void PrintQuality(const QualityRequest& request, const TextQuality& quality,
                  std::ostream& out) {
  const QualityTotals& totals = quality.totals;
  const std::string text =
      request.text_file.empty() ? "the built-in text" : BaseName(request.text_file);
  out << "Quality on " << text << ": " << quality.tokens << " tokens in windows of "
      << quality.window << ", " << totals.positions() << " scored\n";
  if (!quality.compared) {
    PrintLine(out, "perplexity", Fixed(totals.perplexity(), 4));
    return;
  }
  PrintLine(out, "perplexity",
            Fixed(totals.perplexity(), 4) + "  (reference " +
                Fixed(totals.reference_perplexity(), 4) + ")");
  PrintLine(out, "KL(reference || model)",
            Fixed(totals.mean_kl(), 6) + " +- " + Fixed(totals.kl_standard_error(), 6) +
                " nats, largest " + Fixed(totals.largest_kl(), 3));
  PrintLine(out, "same most likely token",
            Fixed(100.0 * totals.same_top_share(), 2) + " %");
}

}  // namespace renga
