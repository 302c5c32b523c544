// Measures and prints the quality of a model: what `quantize` and `eval` share.
//
// Thread rule: one thread calls.

#pragma once

#include <atomic>
#include <ostream>
#include <string>

#include "quantize/text_quality.h"
#include "renga/config.h"
#include "renga/status.h"

namespace renga {

struct QualityRequest {
  std::string model;        // GGUF files.
  std::string reference{};  // Empty: no comparison.
  std::string text_file{};  // Empty: the built-in text.
  DeviceSettings device{};
  std::string kv_dtype = "f16";             // Of the model; the reference has f16.
  bool progress = false;                    // Draws a bar.
  const std::atomic<bool>* stop = nullptr;  // Looked at now and then: CANCELLED.
};

// Threads that `device.threads` asks for; 0: all cores.
int WorkerThreads(const DeviceSettings& settings);

// The model is computed on device.name, the reference on the CPU with device.precision
// high. The bar goes to `err`.
// INVALID_ARGUMENT names the file or setting.
StatusOr<TextQuality> MeasureQuality(const QualityRequest& request, std::ostream& err);

// Perplexity, and of a comparison KL and agreement, as a few lines.
void PrintQuality(const QualityRequest& request, const TextQuality& quality,
                  std::ostream& out);

}  // namespace renga
