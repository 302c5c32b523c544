// The tests of the language: `x is defined`, `x is string`, `x is equalto(y)`, ...
//
// Thread rule: one rendering, one thread (the budget).

#pragma once

#include <string_view>

#include "renga/status.h"
#include "text/jinja/budget.h"
#include "text/jinja/call_args.h"

namespace renga::jinja {

bool HasTest(std::string_view name);

StatusOr<bool> ApplyTest(Budget& budget, std::string_view name, const Value& value,
                         const CallArgs& args);

}  // namespace renga::jinja
