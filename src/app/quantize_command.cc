#include "app/quantize_command.h"

#include <atomic>
#include <cstdio>

#include "app/progress_bar.h"
#include "app/quality_report.h"
#include "app/signal_watch.h"
#include "base/status_macros.h"
#include "formats/mapped_file.h"
#include "quantize/block_codec.h"
#include "quantize/quantise_file.h"

namespace renga {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
constexpr int64_t kMegabyte = 1000000;

StatusOr<WantedTypes> ParseTypes(const QuantizeOptions& options) {
  WantedTypes types;
  RENGA_ASSIGN_OR_RETURN(types.matrix, ParseQuantType(options.type, "--type"));
  types.embedding = DefaultEmbeddingType(types.matrix);
  if (options.embedding_type.empty()) return types;
  RENGA_ASSIGN_OR_RETURN(types.embedding,
                         ParseQuantType(options.embedding_type, "--embedding-type"));
  return types;
}

StatusOr<QuantiseOptions> ParseOptions(const QuantizeOptions& options) {
  if (options.input.empty()) return InvalidArgument("IN", "is required: the GGUF file");
  if (options.output.empty()) return InvalidArgument("OUT", "is required");
  RENGA_ASSIGN_OR_RETURN(const WantedTypes types, ParseTypes(options));
  return QuantiseOptions{
      .types = types, .replace = options.force, .threads = WorkerThreads(options.device)};
}

StatusOr<QuantiseSummary> Quantise(const QuantizeOptions& options,
                                   const QuantiseOptions& parsed,
                                   const std::atomic<bool>& stop, std::ostream& err) {
  constexpr int64_t kParts = 1000;
  ProgressBar bar(err, "Quantising", kParts, options.progress);
  StatusOr<QuantiseSummary> summary = QuantiseFile(
      options.input, options.output, parsed, [&](int64_t done, int64_t total) {
        bar.Update(static_cast<int64_t>(static_cast<double>(done) * kParts /
                                        static_cast<double>(total)));
        return !stop;
      });
  if (summary.ok()) bar.Finish();
  return summary;
}

void PrintTypes(const char* what,
                const std::map<std::string, QuantiseSummary::Type>& types, int64_t bytes,
                std::ostream& out) {
  char line[160];
  std::snprintf(line, sizeof line, "  %-8s%8.1f MB:", what,
                static_cast<double>(bytes) / kMegabyte);
  out << line;
  const char* separator = " ";
  for (const auto& [name, type] : types) {
    out << separator << type.tensors << " x " << name;
    separator = ", ";
  }
  out << '\n';
}

void PrintSummary(const QuantizeOptions& options, const QuantiseSummary& summary,
                  std::ostream& out) {
  out << BaseName(options.input) << " -> " << BaseName(options.output) << '\n';
  PrintTypes("before", summary.before, summary.bytes_before, out);
  PrintTypes("after", summary.after, summary.bytes_after, out);
  if (summary.fallbacks.empty()) return;
  out << "  " << summary.fallbacks.size() << " tensors have rows that " << options.type
      << " does not divide and became wider, for example " << summary.fallbacks[0].first
      << " (" << summary.fallbacks[0].second << ")\n";
}

}  // namespace

int RunQuantize(const QuantizeOptions& options, std::ostream& out, std::ostream& err) {
  const auto complain = [&err](const Status& status, int exit_code) {
    err << "renga: " << status.ToString() << '\n';
    return exit_code;
  };
  const StatusOr<QuantiseOptions> parsed = ParseOptions(options);
  if (!parsed.ok()) return complain(parsed.status(), kWrongUsage);
  // A first SIGINT or SIGTERM ends the work at the next piece, with nothing left behind.
  std::atomic<bool> stop{false};
  const SignalWatch signals([&stop] { stop = true; });
  const StatusOr<QuantiseSummary> summary = Quantise(options, *parsed, stop, err);
  if (!summary.ok()) return complain(summary.status(), kFailed);
  PrintSummary(options, *summary, out);
  if (!options.report) return 0;
  const QualityRequest request{.model = options.output,
                               .reference = options.input,
                               .text_file = options.text_file,
                               .device = options.device,
                               .progress = options.progress,
                               .stop = &stop};
  const StatusOr<TextQuality> quality = MeasureQuality(request, err);
  if (!quality.ok()) {
    err << "renga: " << BaseName(options.output) << " is written, but not measured\n";
    return complain(quality.status(), kFailed);
  }
  PrintQuality(request, *quality, out);
  return 0;
}

}  // namespace renga
