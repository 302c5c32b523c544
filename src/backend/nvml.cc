// See nvml.h. Declares what it uses of nvml.h's interface, which is stable by contract,
// so that no build needs the header.

#include "backend/nvml.h"

#include <dlfcn.h>

#include <cstdint>
#include <utility>

namespace renga {

namespace {

constexpr int kSuccess = 0;
constexpr unsigned kCoreSensor = 0;  // NVML_TEMPERATURE_GPU

struct Utilization {  // nvmlUtilization_t; percent.
  unsigned gpu = 0;
  unsigned memory = 0;
};

struct Memory {  // nvmlMemory_t; bytes.
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

}  // namespace

struct Nvml::Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*handle_by_pci_id)(const char* id, void** gpu) = nullptr;
  // A struct is a void* here: its type is ours alone, and a sanitizer compares the types
  // of both sides.
  int (*utilization)(const void* gpu, void* rates) = nullptr;
  int (*memory)(const void* gpu, void* memory) = nullptr;
  int (*power)(const void* gpu, unsigned* milliwatts) = nullptr;
  int (*temperature)(const void* gpu, unsigned sensor, unsigned* celsius) = nullptr;

  // Whether the library has what no figure can do without.
  bool Load(void* library) {
    Find(library, "nvmlInit_v2", init);
    Find(library, "nvmlShutdown", shutdown);
    Find(library, "nvmlDeviceGetHandleByPciBusId_v2", handle_by_pci_id);
    Find(library, "nvmlDeviceGetUtilizationRates", utilization);
    Find(library, "nvmlDeviceGetMemoryInfo", memory);
    Find(library, "nvmlDeviceGetPowerUsage", power);
    Find(library, "nvmlDeviceGetTemperature", temperature);
    return init != nullptr && shutdown != nullptr && handle_by_pci_id != nullptr;
  }

 private:
  template <class Function>
  static void Find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
  }
};

void Nvml::Unload::operator()(void* library) const { dlclose(library); }

std::unique_ptr<Nvml> Nvml::Open(int32_t index, const std::string& pci_id,
                                 const char* library) {
  Library loaded(dlopen(library, RTLD_NOW | RTLD_LOCAL));
  if (loaded == nullptr) return nullptr;
  auto functions = std::make_unique<Functions>();
  if (!functions->Load(loaded.get()) || functions->init() != kSuccess) return nullptr;
  void* gpu = nullptr;
  if (functions->handle_by_pci_id(pci_id.c_str(), &gpu) != kSuccess) {
    functions->shutdown();
    return nullptr;
  }
  return std::unique_ptr<Nvml>(
      new Nvml(std::move(loaded), std::move(functions), gpu, index));
}

Nvml::Nvml(Library library, std::unique_ptr<Functions> functions, void* gpu,
           int32_t index)
    : library_(std::move(library)),
      functions_(std::move(functions)),
      gpu_(gpu),
      index_(std::to_string(index)) {}

Nvml::~Nvml() { functions_->shutdown(); }

GpuFigures Nvml::Read() const {
  GpuFigures figures{.gpu = index_};
  Utilization rates;
  if (functions_->utilization != nullptr &&
      functions_->utilization(gpu_, &rates) == kSuccess) {
    figures.utilization = rates.gpu / 100.0;
  }
  Memory memory;
  if (functions_->memory != nullptr && functions_->memory(gpu_, &memory) == kSuccess) {
    figures.memory_used_bytes = static_cast<int64_t>(memory.used);
    figures.memory_total_bytes = static_cast<int64_t>(memory.total);
  }
  unsigned milliwatts = 0;
  if (functions_->power != nullptr && functions_->power(gpu_, &milliwatts) == kSuccess) {
    figures.power_watts = milliwatts / 1000.0;
  }
  unsigned celsius = 0;
  if (functions_->temperature != nullptr &&
      functions_->temperature(gpu_, kCoreSensor, &celsius) == kSuccess) {
    figures.temperature_celsius = celsius;
  }
  return figures;
}

}  // namespace renga
