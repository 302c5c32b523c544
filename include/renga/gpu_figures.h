// GpuFigures: what a GPU says of itself. A figure that it does not tell is empty (power
// of a shared one, utilisation of a slice).

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace renga {

struct GpuFigures {
  std::string gpu{};                    // Its index: "0".
  std::optional<double> utilization{};  // Share of the last moment that something ran.
  std::optional<int64_t> memory_used_bytes{};  // By all processes.
  std::optional<int64_t> memory_total_bytes{};
  std::optional<double> power_watts{};
  std::optional<double> temperature_celsius{};
};

}  // namespace renga
