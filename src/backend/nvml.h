// Nvml: asks NVIDIA's management library, which comes with the driver, about one GPU. It
// is loaded when asked for: where it is missing there are no figures, and no error.
//
// Thread safety: Read may be called from any thread.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "renga/gpu_figures.h"

namespace renga {

class Nvml {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  // The GPU by what CUDA calls it and by its PCI id (DeviceInfo): the library counts GPUs
  // in an order of its own. nullptr: no library, or no such GPU.
  static std::unique_ptr<Nvml> Open(int32_t index, const std::string& pci_id,
                                    const char* library = kLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  GpuFigures Read() const;

 private:
  struct Functions;
  struct Unload {
    void operator()(void* library) const;
  };
  using Library = std::unique_ptr<void, Unload>;

  Nvml(Library library, std::unique_ptr<Functions> functions, void* gpu, int32_t index);

  const Library library_;
  const std::unique_ptr<Functions> functions_;
  void* const gpu_;
  const std::string index_;
};

}  // namespace renga
