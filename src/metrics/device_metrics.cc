#include "metrics/device_metrics.h"

#include <limits>

namespace renga {

namespace {

struct Family {
  const char* name;
  const char* help;
};

constexpr std::array kFamilies = {
    Family{"renga_gpu_utilization_ratio",
           "Share of the last moment in which a kernel ran on the GPU"},
    Family{"renga_gpu_memory_used_bytes", "Memory of the GPU in use, by all processes"},
    Family{"renga_gpu_memory_total_bytes", "Memory of the GPU"},
    Family{"renga_gpu_power_watts", "Power that the GPU draws"},
    Family{"renga_gpu_temperature_celsius", "Temperature of the GPU"},
};

std::optional<double> Number(std::optional<int64_t> bytes) {
  if (!bytes.has_value()) return std::nullopt;
  return static_cast<double>(*bytes);
}

}  // namespace

void DeviceMetrics::Set(const GpuFigures& figures) {
  const std::array<std::optional<double>, kFigures> values = {
      figures.utilization, Number(figures.memory_used_bytes),
      Number(figures.memory_total_bytes), figures.power_watts,
      figures.temperature_celsius};
  MutexLock lock(mutex_);
  for (size_t i = 0; i < kFigures; ++i) Show(i, figures.gpu, values[i]);
}

void DeviceMetrics::Show(size_t figure, const std::string& gpu,
                         std::optional<double> value) {
  static_assert(kFamilies.size() == kFigures);
  prometheus::Gauge*& gauge = gauges_[figure];
  if (gauge == nullptr) {
    if (!value.has_value()) return;
    gauge = &prometheus::BuildGauge()
                 .Name(kFamilies[figure].name)
                 .Help(kFamilies[figure].help)
                 .Labels({{"model", model_}})
                 .Register(registry_)
                 .Add({{"gpu", gpu}});
  }
  gauge->Set(value.value_or(std::numeric_limits<double>::quiet_NaN()));
}

}  // namespace renga
