// `renga eval`: the perplexity of a model on a text, and how far its predictions are from
// those of a reference.
//
// Thread rule: one thread calls.

#pragma once

#include <ostream>
#include <string>

#include "renga/config.h"

namespace renga {

struct EvalOptions {
  std::string reference{};  // A GGUF file with the same vocabulary; empty: no comparison.
  std::string text_file{};  // UTF-8; empty: the built-in text.
  bool progress = false;    // Draws bars on `err`: it is a terminal.
};

// Reads config.model.path (required), config.device and config.kv.dtype; the reference is
// computed with 16-bit activations and f16 pages. Progress and complaints go to `err`,
// the result to `out`. Returns the exit code: 0 done; 1 it could not be measured; 2 a
// setting is missing or wrong.
int RunEval(const Config& config, const EvalOptions& options, std::ostream& out,
            std::ostream& err);

}  // namespace renga
