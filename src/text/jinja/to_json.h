// tojson: a value as json.dumps writes it (keys in their own order, nothing escaped that
// JSON does not ask for).
//
// Thread rule: one rendering, one thread (the budget).

#pragma once

#include <optional>
#include <string>

#include "renga/status.h"
#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace renga::jinja {

struct JsonStyle {
  std::optional<int64_t> indent;  // Absent: one line.
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};

StatusOr<std::string> ToJson(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace renga::jinja
