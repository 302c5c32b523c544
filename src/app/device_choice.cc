#include "app/device_choice.h"

#include <charconv>
#include <string>
#include <utility>

#include "app/backend_factory.h"
#include "backend/cpu_backend.h"
#include "backend/cuda_backend.h"
#include "backend/cuda_device.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace renga {
namespace {

constexpr std::string_view kCuda = "cuda";

Status NoSuchName(std::string_view name) {
  std::string message = "must be auto, cpu, cuda or cuda:N, not ";
  message += name;
  return InvalidArgument("device.name", message);
}

StatusOr<std::unique_ptr<Backend>> MakeCpu(const DeviceSettings& settings) {
  return MakeCpuBackend({.isa = settings.isa,
                         .threads = settings.threads,
                         .precision = settings.precision});
}

}  // namespace

StatusOr<DeviceChoice> ParseDeviceName(std::string_view name) {
  if (name == "auto") return DeviceChoice{.kind = DeviceKind::kAuto};
  if (name == "cpu") return DeviceChoice{.kind = DeviceKind::kCpu};
  if (!name.starts_with(kCuda)) return NoSuchName(name);
  DeviceChoice choice{.kind = DeviceKind::kCuda};
  std::string_view rest = name.substr(kCuda.size());
  if (rest.empty()) return choice;
  const char* end = rest.data() + rest.size();
  const auto [stop, error] = std::from_chars(rest.data() + 1, end, choice.index);
  const bool number = rest.size() > 1 && error == std::errc() && stop == end;
  if (rest[0] != ':' || !number || choice.index < 0) return NoSuchName(name);
  return choice;
}

StatusOr<std::unique_ptr<Backend>> MakeBackend(
    const DeviceSettings& settings,
    const std::function<StatusOr<std::unique_ptr<Device>>(int32_t)>& make_device) {
  RENGA_ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDeviceName(settings.name));
  if (choice.kind == DeviceKind::kCpu) return MakeCpu(settings);
  StatusOr<std::unique_ptr<Device>> device = make_device(choice.index);
  if (device.ok()) {
    return MakeCudaBackend(*std::move(device), {.row_invariant = settings.row_invariant,
                                                .threads = settings.threads});
  }
  const Status& why = device.status();
  const bool absent = why.code() == StatusCode::kUnavailable;
  // One that this build has no code for, or whose driver is too old.
  const bool unfit = why.code() == StatusCode::kUnimplemented ||
                     why.code() == StatusCode::kFailedPrecondition;
  if (choice.kind == DeviceKind::kAuto && (absent || unfit)) {
    Log(unfit ? LogLevel::kWarn : LogLevel::kInfo, "device_cpu",
        {{"reason", std::string_view(why.message())}});
    return MakeCpu(settings);
  }
  std::string message = settings.name;
  message += ": ";
  message += why.message();
  return Status(why.code(), message).WithField("device.name");
}

StatusOr<std::unique_ptr<Backend>> MakeDefaultBackend(const DeviceSettings& settings) {
  return MakeBackend(settings, MakeCudaDevice);
}

}  // namespace renga
