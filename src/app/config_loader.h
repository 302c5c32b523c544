// Reads the Config from its three sources: file, environment, flags (later ones win).
//
// A wrong key or value in any of them is an error that names the field and the source.
// Nothing of yaml-cpp leaves the .cc file, its exceptions included.
//
// Thread safety: free functions without state.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "renga/config.h"
#include "renga/status.h"

namespace renga {

struct ConfigSources {
  std::string file;                      // YAML; empty: none.
  std::vector<std::string> environment;  // "NAME=value"; only RENGA_ names are read.
  std::vector<std::pair<std::string, std::string>> flags;  // ("log.level", "debug").
};

struct LoadedConfig {
  Config config;
  std::vector<std::string> warnings;  // For the log, once it is set up.
};

StatusOr<LoadedConfig> LoadConfig(const ConfigSources& sources);

// Complete, commented YAML that loads again to the same Config.
std::string PrintConfig(const Config& config);

}  // namespace renga
