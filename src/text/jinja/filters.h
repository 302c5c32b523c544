// The filters of the language: `x | trim`, `x | join(', ')`, `x | tojson(indent=2)`, ...
//
// Strings keep their marks wherever the bytes stay; a filter that changes characters
// (case, escapes, JSON) trusts its result only if its whole input was trusted.
//
// Thread rule: one rendering, one thread (the budget).

#pragma once

#include <string_view>

#include "renga/status.h"
#include "text/jinja/budget.h"
#include "text/jinja/call_args.h"

namespace renga::jinja {

// One use of a filter.
struct FilterCall {
  Budget& budget;
  std::string_view name;
  const Value& input;
  const CallArgs& args;
};

using FilterFn = StatusOr<Value> (*)(const FilterCall&);

bool HasFilter(std::string_view name);

StatusOr<Value> ApplyFilter(const FilterCall& call);

// The two tables behind it. nullptr: not among them.
FilterFn FindScalarFilter(std::string_view name);
FilterFn FindSequenceFilter(std::string_view name);

}  // namespace renga::jinja
