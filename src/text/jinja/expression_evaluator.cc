// The expression half of the evaluator.

#include <algorithm>

#include "base/status_macros.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/evaluator_guards.h"
#include "text/jinja/filters.h"
#include "text/jinja/marked.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/tests.h"

namespace renga::jinja {
namespace {

using Kind = Expr::Kind;

constexpr std::string_view kBuiltins[] = {"range", "namespace", "dict",
                                          "raise_exception"};

bool IsHashable(const Value& key) {
  return key.IsNumber() || key.Is(Value::Kind::kString) || key.Is(Value::Kind::kNone);
}

void PutEntry(std::vector<std::pair<Value, Value>>& entries, Value key, Value value) {
  for (auto& [old_key, old_value] : entries) {
    if (Equal(old_key, key)) {
      old_value = std::move(value);
      return;
    }
  }
  entries.emplace_back(std::move(key), std::move(value));
}

}  // namespace

StatusOr<Value> Evaluator::Eval(const Expr& expr) {
  const DepthGuard depth(*this);
  if (depth.exceeded())
    return Located(Budget::Exceeded("nested too deeply"), expr.offset);
  StatusOr<Value> value = EvalUnlocated(expr);
  if (!value.ok()) return Located(value.status(), expr.offset);
  return value;
}

StatusOr<Value> Evaluator::EvalUnlocated(const Expr& expr) {
  RENGA_RETURN_IF_ERROR(budget_.Step());
  switch (expr.kind) {
    case Kind::kLiteral:
      return expr.value;
    case Kind::kName:
      return EvalName(expr);
    case Kind::kList:
    case Kind::kTuple:
      return EvalList(expr);
    case Kind::kDict:
      return EvalDict(expr);
    case Kind::kSlice:
      return EvalSlice(expr);
    case Kind::kCall:
      return EvalCall(expr, nullptr);
    case Kind::kFilter:
      return EvalFilter(expr, nullptr);
    case Kind::kTest:
      return EvalTest(expr);
    case Kind::kAnd:
    case Kind::kOr:
      return EvalLogic(expr);
    case Kind::kAttribute:
    case Kind::kSubscript:
    case Kind::kBinary:
      return EvalBinary(expr);
    case Kind::kConcat:
      return EvalConcat(expr);
    case Kind::kCompare:
      return EvalCompare(expr);
    case Kind::kConditional:
      return EvalConditional(expr);
    case Kind::kNot:
    case Kind::kNegative:
    case Kind::kPositive: {
      RENGA_ASSIGN_OR_RETURN(const Value operand, Eval(*expr.children[0]));
      if (expr.kind == Kind::kNot) return Value::Bool(!operand.Truthy());
      if (expr.kind == Kind::kNegative) return Negated(operand);
      return Arithmetic(budget_, "+", Value::Int(0), operand);
    }
  }
  return Internal("unknown expression");
}

StatusOr<Value> Evaluator::EvalName(const Expr& expr) {
  if (const Value* value = FindVariable(expr.name)) return *value;
  for (const std::string_view name : kBuiltins) {
    if (name == expr.name) return Value::Of(Builtin{name});
  }
  return Value::Undefined(Quoted(expr.name) + " is undefined");
}

StatusOr<Value> Evaluator::EvalList(const Expr& expr) {
  std::vector<Value> items;
  for (const ExprPtr& child : expr.children) {
    RENGA_ASSIGN_OR_RETURN(Value item, Eval(*child));
    items.push_back(std::move(item));
  }
  return Value::MakeList(std::move(items), expr.kind == Kind::kTuple);
}

StatusOr<Value> Evaluator::EvalDict(const Expr& expr) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    RENGA_ASSIGN_OR_RETURN(Value key, Eval(*expr.children[i]));
    RENGA_ASSIGN_OR_RETURN(Value value, Eval(*expr.children[i + 1]));
    if (!IsHashable(key)) {
      return TypeError("a key of type '" + std::string(key.TypeName()) + "'");
    }
    RENGA_RETURN_IF_ERROR(budget_.Step(static_cast<int64_t>(entries.size())));
    PutEntry(entries, std::move(key), std::move(value));
  }
  return Value::MakeDict(std::move(entries));
}

StatusOr<Value> Evaluator::EvalSlice(const Expr& expr) {
  RENGA_ASSIGN_OR_RETURN(const Value object, Eval(*expr.children[0]));
  SliceBounds bounds;
  Value* const parts[] = {&bounds.start, &bounds.stop, &bounds.step};
  for (size_t i = 0; i < 3; ++i) {
    if (!expr.children[i + 1]) continue;
    RENGA_ASSIGN_OR_RETURN(*parts[i], Eval(*expr.children[i + 1]));
  }
  return GetSlice(budget_, object, bounds);
}

StatusOr<CallArgs> Evaluator::EvalArguments(const Expr& expr) {
  CallArgs args;
  for (size_t i = 1; i < expr.children.size(); ++i) {
    RENGA_ASSIGN_OR_RETURN(Value value, Eval(*expr.children[i]));
    args.positional.push_back(std::move(value));
  }
  for (const Keyword& keyword : expr.keywords) {
    RENGA_ASSIGN_OR_RETURN(Value value, Eval(*keyword.value));
    args.named.emplace_back(keyword.name, std::move(value));
  }
  return args;
}

StatusOr<Value> Evaluator::EvalCall(const Expr& expr, const Value* caller) {
  RENGA_ASSIGN_OR_RETURN(const Value callee, Eval(*expr.children[0]));
  RENGA_ASSIGN_OR_RETURN(CallArgs args, EvalArguments(expr));
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  switch (callee.kind()) {
    case Value::Kind::kMacro:
      return CallMacro(*callee.macro(), args);
    case Value::Kind::kMethod:
      return CallMethod(budget_, callee.method(), args);
    case Value::Kind::kBuiltin:
      return CallBuiltin(callee.builtin().name, args);
    case Value::Kind::kUndefined:
      return UndefinedError(callee);
    default:
      return TypeError(Quoted(callee.TypeName()) + " object is not callable");
  }
}

StatusOr<Value> Evaluator::EvalFilter(const Expr& expr, const Value* input) {
  Value value;
  if (input != nullptr) {
    value = *input;
  } else {
    RENGA_ASSIGN_OR_RETURN(value, Eval(*expr.children[0]));
  }
  RENGA_ASSIGN_OR_RETURN(const CallArgs args, EvalArguments(expr));
  return ApplyFilter({budget_, expr.name, value, args});
}

StatusOr<Value> Evaluator::EvalTest(const Expr& expr) {
  RENGA_ASSIGN_OR_RETURN(const Value value, Eval(*expr.children[0]));
  RENGA_ASSIGN_OR_RETURN(const CallArgs args, EvalArguments(expr));
  RENGA_ASSIGN_OR_RETURN(const bool holds, ApplyTest(budget_, expr.name, value, args));
  return Value::Bool(holds);
}

StatusOr<Value> Evaluator::EvalLogic(const Expr& expr) {
  RENGA_ASSIGN_OR_RETURN(Value left, Eval(*expr.children[0]));
  if (left.Truthy() == (expr.kind == Kind::kOr)) return left;
  return Eval(*expr.children[1]);
}

StatusOr<Value> Evaluator::EvalBinary(const Expr& expr) {
  RENGA_ASSIGN_OR_RETURN(const Value left, Eval(*expr.children[0]));
  if (expr.kind == Kind::kAttribute) return GetAttribute(budget_, left, expr.name);
  RENGA_ASSIGN_OR_RETURN(const Value right, Eval(*expr.children[1]));
  if (expr.kind == Kind::kSubscript) return GetItem(budget_, left, right);
  return Arithmetic(budget_, expr.name, left, right);
}

StatusOr<Value> Evaluator::EvalConcat(const Expr& expr) {
  MarkedText text;
  for (const ExprPtr& child : expr.children) {
    RENGA_ASSIGN_OR_RETURN(const Value value, Eval(*child));
    RENGA_ASSIGN_OR_RETURN(const MarkedText part, ToText(budget_, value));
    Append(text, part);
  }
  return Value::String(std::move(text));
}

StatusOr<Value> Evaluator::EvalCompare(const Expr& expr) {
  RENGA_ASSIGN_OR_RETURN(Value left, Eval(*expr.children[0]));
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    RENGA_ASSIGN_OR_RETURN(Value right, Eval(*expr.children[i + 1]));
    RENGA_ASSIGN_OR_RETURN(const bool holds,
                           Compared(budget_, expr.operators[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

StatusOr<Value> Evaluator::EvalConditional(const Expr& expr) {
  RENGA_ASSIGN_OR_RETURN(const Value condition, Eval(*expr.children[0]));
  if (condition.Truthy()) return Eval(*expr.children[1]);
  if (expr.children[2]) return Eval(*expr.children[2]);
  return Value::Undefined("the inline if is false and has no else");
}

Status Evaluator::BindParameters(const Stmt& definition, const CallArgs& args) {
  const auto& parameters = definition.parameters;
  if (args.positional.size() > parameters.size()) {
    return TypeError("macro '" + definition.name + "' takes not more than " +
                     std::to_string(parameters.size()) + " arguments");
  }
  const auto is_parameter = [&](const std::string& name) {
    return std::any_of(parameters.begin(), parameters.end(),
                       [&](const Parameter& p) { return p.name == name; });
  };
  for (const auto& [name, value] : args.named) {
    if (name == "caller") {
      SetVariable("caller", value);
    } else if (!is_parameter(name)) {
      return TypeError("macro '" + definition.name + "' has no argument '" + name + "'");
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    Value value = Value::Undefined("parameter '" + parameter.name + "' was not provided");
    if (const Value* given = args.Find(i, parameter.name)) {
      value = *given;
    } else if (parameter.fallback) {
      RENGA_ASSIGN_OR_RETURN(value, Eval(*parameter.fallback));
    }
    SetVariable(parameter.name, std::move(value));
  }
  return OkStatus();
}

StatusOr<Value> Evaluator::CallMacro(const Macro& macro, const CallArgs& args) {
  const ScopeGuard scope(*this, macro.scope);
  RENGA_RETURN_IF_ERROR(BindParameters(*macro.definition, args));
  MarkedText text;
  const StatusOr<Flow> flow = Capture(macro.definition->body, text);
  if (!flow.ok()) return flow.status();
  return Value::String(std::move(text));
}

StatusOr<Value> Evaluator::MakeNamespace(const CallArgs& args) {
  Namespace fields;
  if (args.positional.size() > 1) return TypeError("namespace() takes one mapping");
  if (!args.positional.empty()) {
    if (!args.positional[0].Is(Value::Kind::kDict)) {
      return TypeError("namespace() takes a mapping");
    }
    for (const auto& [key, value] : args.positional[0].dict().entries) {
      RENGA_RETURN_IF_ERROR(budget_.Step(static_cast<int64_t>(fields.fields.size())));
      if (key.Is(Value::Kind::kString)) fields.Set(key.string(), value);
    }
  }
  for (const auto& [name, value] : args.named) fields.Set(name, value);
  namespaces_.push_back(std::move(fields));
  return Value::Of(&namespaces_.back());
}

StatusOr<Value> Evaluator::MakeRange(const CallArgs& args) {
  RENGA_RETURN_IF_ERROR(args.Check("range", {"start", "stop", "step"}));
  for (const Value& value : args.positional) {
    if (!value.Is(Value::Kind::kInt) && !value.Is(Value::Kind::kBool)) {
      return TypeError("range() needs integers");
    }
  }
  const size_t count = args.positional.size();
  if (count == 0) return TypeError("range() needs 1 to 3 arguments");
  const int64_t start = count == 1 ? 0 : args.positional[0].integer();
  const int64_t stop = args.positional[count == 1 ? 0 : 1].integer();
  const int64_t step = count == 3 ? args.positional[2].integer() : 1;
  if (step == 0) return TypeError("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    RENGA_RETURN_IF_ERROR(budget_.Round());
    items.push_back(Value::Int(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::MakeList(std::move(items));
}

StatusOr<Value> Evaluator::CallBuiltin(std::string_view name, const CallArgs& args) {
  if (name == "range") return MakeRange(args);
  if (name == "namespace") return MakeNamespace(args);
  if (name == "raise_exception") {
    RENGA_RETURN_IF_ERROR(args.Check(name, {"message"}));
    const Value* message = args.Find(0, "message");
    if (message == nullptr) return TypeError("raise_exception() needs a message");
    RENGA_ASSIGN_OR_RETURN(MarkedText text, ToText(budget_, *message));
    return FailedPrecondition(std::move(text.text));
  }
  std::vector<std::pair<Value, Value>> entries;  // dict(a=1)
  if (!args.positional.empty()) return TypeError("dict() takes named arguments only");
  for (const auto& [key, value] : args.named) {
    PutEntry(entries, Value::String(TrustedText(key)), value);
  }
  return Value::MakeDict(std::move(entries));
}

}  // namespace renga::jinja
