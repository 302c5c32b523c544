// Python's operators, attribute and item access on values.
//
// Errors say what is wrong; the evaluator adds where.
//
// Thread rule: one rendering, one thread (the budget).

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "renga/status.h"
#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace renga::jinja {

// 'name', in quotes.
std::string Quoted(std::string_view name);

// A use that the values do not allow.
Status TypeError(std::string message);
// "'x' is undefined", from the hint of an undefined value.
Status UndefinedError(const Value& value);

StatusOr<Value> Arithmetic(Budget& budget, std::string_view op, const Value& a,
                           const Value& b);
StatusOr<Value> Negated(const Value& value);
// ==, !=, <, <=, >, >=, in, not in.
StatusOr<bool> Compared(Budget& budget, std::string_view op, const Value& a,
                        const Value& b);

// a.name: methods first, then entries; undefined if there is neither.
StatusOr<Value> GetAttribute(Budget& budget, const Value& object, std::string_view name);
// a[key]: entries first, then methods.
StatusOr<Value> GetItem(Budget& budget, const Value& object, const Value& key);
// a[start:stop:step]; absent bounds are None.
struct SliceBounds {
  Value start;
  Value stop;
  Value step;
};
StatusOr<Value> GetSlice(Budget& budget, const Value& object, const SliceBounds& bounds);

// The items that a loop over `value` sees.
StatusOr<std::vector<Value>> Iterate(Budget& budget, const Value& value);

// str(value), charged.
StatusOr<MarkedText> ToText(Budget& budget, const Value& value);

}  // namespace renga::jinja
