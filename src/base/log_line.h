// What both logs share: log.cc writes through spdlog, log_stderr.cc, for builds that have
// the standard library alone, by itself.
//
// Thread safety: plain functions.

#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "renga/status.h"

namespace renga {

struct LogSettings {
  LogLevel level = LogLevel::kInfo;
  bool json = false;
};

// Names the field that is wrong: log.level or log.format.
StatusOr<LogSettings> ParseLogSettings(std::string_view level, std::string_view format);
// Field "level" if there is no such one.
StatusOr<LogLevel> ParseLogLevel(std::string_view level);

// The event and its fields: in JSON the inside of an object, else `event key=value ...`.
std::string LogLine(bool json, std::string_view event,
                    std::initializer_list<LogField> fields);

}  // namespace renga
