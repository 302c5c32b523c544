// A library with the interface of libnvidia-ml.so.1, and two GPUs: one that tells
// everything and one, a slice of a shared GPU, that tells its memory alone.
//
// Thread safety: none.

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInUse = 19;

bool in_use = false;
char whole = 'w';
char slice = 's';

bool IsSlice(const void* gpu) { return gpu == &slice; }

bool Same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

struct Utilization {
  unsigned gpu;
  unsigned memory;
};
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  if (in_use) return kInUse;  // So that a test sees a missing shutdown.
  in_use = true;
  return kSuccess;
}

int nvmlShutdown() {
  in_use = false;
  return kSuccess;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** gpu) {
  if (Same(id, "0000:65:00.0")) {
    *gpu = &whole;
    return kSuccess;
  }
  if (!Same(id, "0000:66:00.0")) return kNotFound;
  *gpu = &slice;
  return kSuccess;
}

int nvmlDeviceGetUtilizationRates(const void* gpu, void* rates) {
  if (IsSlice(gpu)) return kNotSupported;
  *static_cast<Utilization*>(rates) = {87, 40};
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(const void* gpu, void* memory) {
  const unsigned long long total = IsSlice(gpu) ? 10'000'000'000 : 24'000'000'000;
  *static_cast<Memory*>(memory) = {total, total - 6'000'000'000, 6'000'000'000};
  return kSuccess;
}

int nvmlDeviceGetPowerUsage(const void* gpu, unsigned* milliwatts) {
  if (IsSlice(gpu)) return kNotSupported;
  *milliwatts = 151'500;
  return kSuccess;
}

int nvmlDeviceGetTemperature(const void* gpu, unsigned sensor, unsigned* celsius) {
  if (IsSlice(gpu) || sensor != 0) return kNotSupported;
  *celsius = 61;
  return kSuccess;
}

}  // extern "C"
