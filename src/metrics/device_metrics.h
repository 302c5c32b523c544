// DeviceMetrics: the figures of the GPU that computes, as gauges with the label `gpu`.
//
//   renga_gpu_utilization_ratio
//   renga_gpu_memory_used_bytes
//   renga_gpu_memory_total_bytes
//   renga_gpu_power_watts
//   renga_gpu_temperature_celsius
//
// A gauge is there from the first look on that has its figure; on a server without a GPU
// there is none. A figure that stays away later shows as NaN.
//
// Thread safety: Set may be called from any thread.

#pragma once

#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "renga/gpu_figures.h"

namespace renga {

class DeviceMetrics {
 public:
  // The registry outlives this.
  DeviceMetrics(prometheus::Registry& registry, const std::string& model)
      : registry_(registry), model_(model) {}

  void Set(const GpuFigures& figures) RENGA_EXCLUDES(mutex_);

 private:
  static constexpr size_t kFigures = 5;

  void Show(size_t figure, const std::string& gpu, std::optional<double> value)
      RENGA_REQUIRES(mutex_);

  prometheus::Registry& registry_;
  const std::string model_;
  Mutex mutex_;
  std::array<prometheus::Gauge*, kFigures> gauges_ RENGA_GUARDED_BY(mutex_){};
};

}  // namespace renga
