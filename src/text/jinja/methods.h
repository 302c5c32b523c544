// The methods of strings, lists, dicts and `loop` that templates may call.
//
// Methods that would change a value (append, update, ...) do not exist, as in the
// sandbox of the reference.
//
// Thread rule: one rendering, one thread (the budget).

#pragma once

#include <string_view>

#include "renga/status.h"
#include "text/jinja/budget.h"
#include "text/jinja/call_args.h"
#include "text/jinja/value.h"

namespace renga::jinja {

bool HasMethod(const Value& object, std::string_view name);

StatusOr<Value> CallMethod(Budget& budget, const BoundMethod& method,
                           const CallArgs& args);

// loop.index, loop.first, loop.previtem, ...
Value LoopAttribute(const LoopState& loop, std::string_view name);

}  // namespace renga::jinja
