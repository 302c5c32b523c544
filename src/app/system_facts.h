// What the kernel says of this machine: CPU, cores that may really be used, memory and
// its limits, huge pages.
//
// Containers are limited by control groups (version 1 or 2), which the numbers of the
// machine do not show: the least limit on the way from the process's group to the root
// counts.
//
// Thread safety: plain values and functions without state.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace renga {

struct SystemFacts {
  std::string cpu{};                 // "Intel(R) Xeon(R) Processor"; empty: not known.
  std::vector<std::string> flags{};  // Those that matter here, as the kernel spells them.
  int32_t cores = 0;                 // Online.
  int32_t allowed_cores = 0;         // Of these, in the process's affinity mask.
  double quota_cores = 0.0;          // What the control group allows; 0: no limit.
  int64_t memory_bytes = 0;
  int64_t available_bytes = 0;  // Without swapping, as the kernel judges.
  int64_t limit_bytes = 0;      // Of the control group; 0: none.
  int64_t limit_used_bytes = 0;
  std::string huge_pages{};  // "always", "madvise" or "never"; empty: not known.
  double load = 0.0;         // Programs that wanted to run, over the last minute.
};

// `root` stands before every path (tests have a tree of their own); the affinity mask is
// the process's.
SystemFacts ReadSystemFacts(const std::string& root = "");

// Threads that can run at the same time, rounded down, at least 1.
int32_t UsableCores(const SystemFacts& facts);
// What this process could still have.
int64_t UsableBytes(const SystemFacts& facts);

}  // namespace renga
