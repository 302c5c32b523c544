// The arguments of a call, filter, test or method, and how a callee reads them.
//
// Thread safety: plain values.

#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "renga/status.h"
#include "text/jinja/value.h"

namespace renga::jinja {

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at `index` or of `name`; nullptr if absent.
  const Value* Find(size_t index, std::string_view name) const {
    if (index < positional.size()) return &positional[index];
    for (const auto& [key, value] : named) {
      if (key == name) return &value;
    }
    return nullptr;
  }

  // Refuses more positional arguments than `names`, and names that are not among them.
  Status Check(std::string_view callee,
               std::initializer_list<std::string_view> names) const {
    if (positional.size() > names.size()) {
      return Status(StatusCode::kInvalidArgument,
                    std::string(callee) + "() takes at most " +
                        std::to_string(names.size()) + " arguments");
    }
    for (const auto& [key, value] : named) {
      bool known = false;
      for (const std::string_view name : names) known = known || name == key;
      if (!known) {
        return Status(StatusCode::kInvalidArgument,
                      std::string(callee) + "() has no argument '" + key + "'");
      }
    }
    return OkStatus();
  }
};

}  // namespace renga::jinja
