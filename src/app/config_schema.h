// The one table of settings: name, place in Config, limits, unit, and what it costs.
//
// YAML keys, flags, environment variables and `--print-config` are all made from it, so
// that they cannot differ. A field that is in Config but not here does not exist.
//
// Thread safety: immutable.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "renga/config.h"
#include "renga/status.h"

namespace renga {

// Where a field's value lives; the alternative is the field's type.
using ConfigValue = std::variant<std::string*, int32_t*, int64_t*, bool*>;

struct ConfigField {
  std::string_view name;  // "scheduler.window_ms".
  ConfigValue (*value)(Config& config);
  // Numbers: the least and greatest value that is accepted.
  int64_t min = 0;
  int64_t max = 0;
  // Text: the accepted words, separated by '|'; empty: any text, or as `unit` says.
  std::string_view choices = {};
  std::string_view unit = {};  // "ms", "bytes", "host:port", ...; empty: none.
  std::string_view doc = {};   // What it does, and what it costs.
};

std::span<const ConfigField> ConfigSchema();
// nullptr: no field has this name.
const ConfigField* FindConfigField(std::string_view name);

// "RENGA_SCHEDULER_WINDOW_MS".
std::string EnvironmentName(const ConfigField& field);

// Reads `text` as the field's type, checks its limits and stores it.
Status SetConfigField(const ConfigField& field, std::string_view text, Config& config);
// The inverse, as YAML writes it: text is quoted.
std::string ConfigFieldYaml(const ConfigField& field, const Config& config);

// Rules between fields; each field alone was checked when it was set.
Status CheckConfig(const Config& config);

}  // namespace renga
