// device.name: which device a server computes on.
//
// Thread safety: plain functions.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "backend/device.h"
#include "renga/backend.h"
#include "renga/config.h"
#include "renga/status.h"

namespace renga {

enum class DeviceKind : uint8_t { kAuto, kCpu, kCuda };

struct DeviceChoice {
  DeviceKind kind = DeviceKind::kAuto;
  int32_t index = 0;  // Of the GPU.
};

// InvalidArgument with device.name.
StatusOr<DeviceChoice> ParseDeviceName(std::string_view name);

// `make_device` makes the CUDA device of that index. That there is none (Unavailable), or
// an unfit one (Unimplemented: too old; FailedPrecondition: its driver is), means the CPU
// with `auto`, and is logged.
StatusOr<std::unique_ptr<Backend>> MakeBackend(
    const DeviceSettings& settings,
    const std::function<StatusOr<std::unique_ptr<Device>>(int32_t)>& make_device);

}  // namespace renga
