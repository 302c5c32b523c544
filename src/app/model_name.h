// What clients call the served model.
//
// Thread safety: free function.

#pragma once

#include <string>

#include "renga/config.h"

namespace renga {

// `model.name` if set; else the name that the file gives itself (untrusted: it ends up in
// metric labels and log lines); else the file's own name without folder and ending.
std::string ServedModelName(const ModelSettings& settings, const std::string& file_name);

}  // namespace renga
