#include "app/eval_command.h"

#include "app/quality_report.h"

namespace renga {

int RunEval(const Config& config, const EvalOptions& options, std::ostream& out,
            std::ostream& err) {
  constexpr int kFailed = 1;
  constexpr int kWrongUsage = 2;
  if (config.model.path.empty()) {
    err << "renga: INVALID_ARGUMENT: model.path: is required: the GGUF file\n";
    return kWrongUsage;
  }
  const QualityRequest request{.model = config.model.path,
                               .reference = options.reference,
                               .text_file = options.text_file,
                               .device = config.device,
                               .kv_dtype = config.kv.dtype,
                               .progress = options.progress};
  const StatusOr<TextQuality> quality = MeasureQuality(request, err);
  if (!quality.ok()) {
    err << "renga: " << quality.status().ToString() << '\n';
    return kFailed;
  }
  PrintQuality(request, *quality, out);
  return 0;
}

}  // namespace renga
