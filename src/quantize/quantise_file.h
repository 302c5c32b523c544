// Rewrites a model file with other weight types.
//
// Keys are copied as they are, but general.file_type and general.quantization_version,
// which say what the file is now. Tensors keep their order. The file is read and written
// in pieces of a few megabytes, on all threads; equal input gives equal bytes, whatever
// their number.
//
// Thread rule: one thread calls.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "quantize/tensor_plan.h"
#include "renga/status.h"

namespace renga {

// Called on the caller's thread now and then; false stops the work.
using WorkProgress = std::function<bool(int64_t done, int64_t total)>;

struct QuantiseOptions {
  WantedTypes types;
  bool replace = false;  // An existing output.
  int threads = 1;
};

struct QuantiseSummary {
  struct Type {
    int64_t tensors = 0;
    int64_t bytes = 0;
  };
  int64_t bytes_before = 0;  // Of the tensors.
  int64_t bytes_after = 0;
  std::map<std::string, Type> before;  // By name of the type.
  std::map<std::string, Type> after;
  // Tensors whose rows the wanted type does not divide, and the type each got.
  std::vector<std::pair<std::string, std::string>> fallbacks;
};

// Refuses, with nothing left behind: an input that is no whole model file, the same file
// as output, an output that exists (unless `replace`), tensors that cannot be read, that
// hold a NaN or an infinity, or whose values are too large for their new type (by name),
// a full disk. CANCELLED: `progress` said stop.
StatusOr<QuantiseSummary> QuantiseFile(const std::string& input,
                                       const std::string& output,
                                       const QuantiseOptions& options,
                                       const WorkProgress& progress);

}  // namespace renga
