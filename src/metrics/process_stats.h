// ProcessStats: what the system says of this process, under the names that every
// Prometheus client exports.
//
// Thread safety: free functions without state; each call reads /proc anew.

#pragma once

namespace renga {

// 0 where the system does not say.
struct ProcessStats {
  double cpu_seconds = 0.0;  // User and system, all threads.
  double resident_bytes = 0.0;
  double virtual_bytes = 0.0;
  double threads = 0.0;
  double open_descriptors = 0.0;
  double max_descriptors = 0.0;
  double start_seconds = 0.0;  // Wall clock: seconds since 1970.
};

ProcessStats ReadProcessStats();

}  // namespace renga
