// `renga doctor`: what this machine can do, and whether the settings and a model fit it.
//
// Thread rule: one thread calls.

#pragma once

#include <ostream>

#include "app/config_loader.h"

namespace renga {

struct DoctorOptions {
  bool json = false;   // One JSON object instead of text.
  bool quick = false;  // Measures nothing, and so predicts nothing.
};

// Looks at the machine and at the settings; with a model.path at that model too. Unless
// it is quick it takes about two seconds, in which it uses all threads. Returns the exit
// code: 0 a server with these settings would start and fit; 1 it would not.
int RunDoctor(const LoadedConfig& loaded, const DoctorOptions& options,
              std::ostream& out);

}  // namespace renga
