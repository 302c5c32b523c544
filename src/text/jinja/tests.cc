#include "text/jinja/tests.h"

#include "base/status_macros.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace renga::jinja {
namespace {

using Kind = Value::Kind;
using Predicate = bool (*)(const Value&);

struct SimpleTest {
  std::string_view name;
  Predicate holds;
};

bool IsInteger(const Value& v) { return v.Is(Kind::kInt); }
bool IsCallable(const Value& v) {
  return v.Is(Kind::kMacro) || v.Is(Kind::kMethod) || v.Is(Kind::kBuiltin);
}
bool IsSequence(const Value& v) {
  return v.Is(Kind::kList) || v.Is(Kind::kString) || v.Is(Kind::kDict);
}

constexpr SimpleTest kSimpleTests[] = {
    {"defined", [](const Value& v) { return !v.Is(Kind::kUndefined); }},
    {"undefined", [](const Value& v) { return v.Is(Kind::kUndefined); }},
    {"none", [](const Value& v) { return v.Is(Kind::kNone); }},
    {"string", [](const Value& v) { return v.Is(Kind::kString); }},
    {"number", [](const Value& v) { return v.IsNumber(); }},
    {"integer", IsInteger},
    {"float", [](const Value& v) { return v.Is(Kind::kFloat); }},
    {"boolean", [](const Value& v) { return v.Is(Kind::kBool); }},
    {"true", [](const Value& v) { return v.Is(Kind::kBool) && v.boolean(); }},
    {"false", [](const Value& v) { return v.Is(Kind::kBool) && !v.boolean(); }},
    {"mapping", [](const Value& v) { return v.Is(Kind::kDict); }},
    {"sequence", IsSequence},
    {"iterable", [](const Value& v) { return IsSequence(v) || v.Is(Kind::kUndefined); }},
    {"callable", IsCallable},
};

// Names of the tests that are comparisons.
struct ComparisonTest {
  std::string_view name;
  std::string_view op;
};
constexpr ComparisonTest kComparisons[] = {
    {"equalto", "=="}, {"eq", "=="}, {"==", "=="}, {"sameas", "=="},     {"ne", "!="},
    {"!=", "!="},      {"lt", "<"},  {"<", "<"},   {"lessthan", "<"},    {"le", "<="},
    {"<=", "<="},      {"gt", ">"},  {">", ">"},   {"greaterthan", ">"}, {"ge", ">="},
    {">=", ">="},      {"in", "in"}};
constexpr std::string_view kOthers[] = {"odd", "even", "divisibleby", "upper", "lower"};

StatusOr<bool> Divides(const Value& value, int64_t by, int64_t rest) {
  if (!value.Is(Kind::kInt) && !value.Is(Kind::kBool)) {
    return TypeError("the test needs an integer, not " + std::string(value.TypeName()));
  }
  if (by == 0) return TypeError("division by zero");
  if (by == -1) return rest == 0;
  return (value.integer() % by + by) % by == rest;
}

StatusOr<bool> IsCase(Budget& budget, std::string_view name, const Value& value) {
  RENGA_ASSIGN_OR_RETURN(const MarkedText text, ToText(budget, value));
  const std::string upper = Upper(text.text);
  const std::string lower = Lower(text.text);
  return upper != lower && text.text == (name == "upper" ? upper : lower);
}

}  // namespace

bool HasTest(std::string_view name) {
  for (const SimpleTest& test : kSimpleTests) {
    if (test.name == name) return true;
  }
  for (const ComparisonTest& test : kComparisons) {
    if (test.name == name) return true;
  }
  for (const std::string_view other : kOthers) {
    if (other == name) return true;
  }
  return false;
}

StatusOr<bool> ApplyTest(Budget& budget, std::string_view name, const Value& value,
                         const CallArgs& args) {
  for (const SimpleTest& test : kSimpleTests) {
    if (test.name != name) continue;
    RENGA_RETURN_IF_ERROR(args.Check(name, {}));
    return test.holds(value);
  }
  const bool unary =
      name == "odd" || name == "even" || name == "upper" || name == "lower";
  RENGA_RETURN_IF_ERROR(args.Check(name, {"other"}));
  const Value* other = args.Find(0, "other");
  if (!unary && other == nullptr) {
    return TypeError("the test '" + std::string(name) + "' needs an argument");
  }
  for (const ComparisonTest& test : kComparisons) {
    if (test.name != name) continue;
    if (name == "sameas" && value.kind() != other->kind()) return false;
    return Compared(budget, test.op, value, *other);
  }
  if (name == "odd") return Divides(value, 2, 1);
  if (name == "even") return Divides(value, 2, 0);
  if (name == "upper" || name == "lower") return IsCase(budget, name, value);
  if (name == "divisibleby") {
    if (!other->Is(Kind::kInt)) return TypeError("divisibleby needs an integer");
    return Divides(value, other->integer(), 0);
  }
  return TypeError("no test named '" + std::string(name) + "'");
}

}  // namespace renga::jinja
