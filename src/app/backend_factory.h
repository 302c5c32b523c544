// BackendFactory: makes the device of a server.
//
// Thread safety: plain function types.

#pragma once

#include <functional>
#include <memory>

#include "renga/backend.h"
#include "renga/config.h"
#include "renga/status.h"

namespace renga {

using BackendFactory =
    std::function<StatusOr<std::unique_ptr<Backend>>(const DeviceSettings&)>;

// What device.name says (device_choice.h).
StatusOr<std::unique_ptr<Backend>> MakeDefaultBackend(const DeviceSettings& settings);

}  // namespace renga
