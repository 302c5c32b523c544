// `renga quantize`: a model file with smaller weights, and a report of what that costs.
//
// Thread rule: one thread calls; returns when all is written.

#pragma once

#include <ostream>
#include <string>

#include "renga/config.h"

namespace renga {

struct QuantizeOptions {
  std::string input;             // The GGUF file to read. Required.
  std::string output;            // The GGUF file to write. Required.
  std::string type;              // f32 | f16 | q8_0 | q4_0 | q4_1 | q4_k. Required.
  std::string embedding_type{};  // The same words, for the tables; empty: q8_0 for q4_*.
  bool force = false;            // An existing output is replaced.
  bool report = true;            // Compares output and input on a text.
  std::string text_file{};       // That text; empty: the built-in one.
  DeviceSettings device{};       // Threads of all of it; the rest for the report.
  bool progress = false;         // Draws bars on `err`: it is a terminal.
};

// Progress and complaints go to `err`, what was done and the report to `out`. Returns the
// exit code: 0 done; 1 a file could not be read or written (no half-written output stays)
// or the report failed (the output stays); 2 an option is wrong.
int RunQuantize(const QuantizeOptions& options, std::ostream& out, std::ostream& err);

}  // namespace renga
