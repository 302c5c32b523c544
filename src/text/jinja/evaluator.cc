#include "text/jinja/evaluator.h"

#include <algorithm>

#include "base/status_macros.h"
#include "text/jinja/evaluator_guards.h"
#include "text/jinja/lexer.h"
#include "text/jinja/marked.h"
#include "text/jinja/operators.h"

namespace renga::jinja {
namespace {

using Kind = Stmt::Kind;

}  // namespace

Evaluator::Evaluator(std::string_view source, const Variables& context,
                     const RenderLimits& limits)
    : source_(source),
      context_(context),
      budget_(limits),
      max_depth_(limits.max_depth),
      scope_(std::make_shared<Scope>()) {}

Evaluator::~Evaluator() = default;

StatusOr<MarkedText> Evaluator::Run(const Block& block) {
  const StatusOr<Flow> flow = ExecBlock(block);
  if (!flow.ok()) return flow.status();
  return std::move(output_);
}

Status Evaluator::Located(Status status, size_t offset) const {
  // The innermost place wins; it is marked by the field, which nothing else uses here.
  if (status.code() == StatusCode::kFailedPrecondition || !status.field().empty()) {
    return status;
  }
  const Status at = ErrorAt(source_, offset, status.message());
  return Status(status.code(), at.message()).WithField("template");
}

StatusOr<Evaluator::Flow> Evaluator::ExecBlock(const Block& block) {
  for (const auto& stmt : block) {
    StatusOr<Flow> flow = Exec(*stmt);
    if (!flow.ok()) return Located(flow.status(), stmt->offset);
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

StatusOr<Evaluator::Flow> Evaluator::Exec(const Stmt& stmt) {
  const DepthGuard depth(*this);
  if (depth.exceeded()) return Budget::Exceeded("nested too deeply");
  RENGA_RETURN_IF_ERROR(budget_.Step());
  switch (stmt.kind) {
    case Kind::kData:
      RENGA_RETURN_IF_ERROR(budget_.Make(static_cast<int64_t>(stmt.data.size())));
      AppendTrusted(*out_, stmt.data);
      return Flow::kNext;
    case Kind::kOutput:
      return ExecOutput(stmt);
    case Kind::kIf:
      return ExecIf(stmt);
    case Kind::kFor:
      return ExecFor(stmt);
    case Kind::kSet:
      return ExecSet(stmt);
    case Kind::kSetBlock:
      return ExecSetBlock(stmt);
    case Kind::kMacro:
      return ExecMacro(stmt);
    case Kind::kCall:
      return ExecCall(stmt);
    case Kind::kFilter:
      return ExecFilterBlock(stmt);
    case Kind::kWith:
      return ExecWith(stmt);
    case Kind::kScope:
      return ExecScope(stmt);
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Internal("unknown statement");
}

StatusOr<Evaluator::Flow> Evaluator::ExecOutput(const Stmt& stmt) {
  RENGA_ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr));
  RENGA_ASSIGN_OR_RETURN(const MarkedText text, ToText(budget_, value));
  Append(*out_, text);
  return Flow::kNext;
}

StatusOr<Evaluator::Flow> Evaluator::ExecIf(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition) {
      RENGA_ASSIGN_OR_RETURN(const Value condition, Eval(*branch.condition));
      if (!condition.Truthy()) continue;
    }
    return ExecBlock(branch.body);
  }
  return Flow::kNext;
}

StatusOr<std::vector<Value>> Evaluator::LoopItems(const Stmt& stmt) {
  RENGA_ASSIGN_OR_RETURN(const Value sequence, Eval(*stmt.expr));
  RENGA_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(budget_, sequence));
  if (!stmt.filter) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    const ScopeGuard scope(*this, scope_);
    RENGA_RETURN_IF_ERROR(budget_.Round());
    RENGA_RETURN_IF_ERROR(Assign(stmt.target, item));
    RENGA_ASSIGN_OR_RETURN(const Value condition, Eval(*stmt.filter));
    if (condition.Truthy()) kept.push_back(std::move(item));
  }
  return kept;
}

StatusOr<Evaluator::Flow> Evaluator::ExecFor(const Stmt& stmt) {
  RENGA_ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(stmt));
  if (items.empty()) {
    const ScopeGuard scope(*this, scope_);
    return ExecBlock(stmt.otherwise);
  }
  RENGA_ASSIGN_OR_RETURN(const Value list, Value::MakeList(std::move(items)));
  return ExecRounds(stmt, list);
}

StatusOr<Evaluator::Flow> Evaluator::ExecRounds(const Stmt& stmt, const Value& items) {
  const auto rounds = static_cast<int64_t>(items.list().items.size());
  for (int64_t i = 0; i < rounds; ++i) {
    RENGA_RETURN_IF_ERROR(budget_.Round());
    const ScopeGuard scope(*this, scope_);
    SetVariable("loop", Value::Of(std::make_shared<const LoopState>(
                            LoopState{.items = items, .index0 = i})));
    RENGA_RETURN_IF_ERROR(
        Assign(stmt.target, items.list().items[static_cast<size_t>(i)]));
    RENGA_ASSIGN_OR_RETURN(const Flow flow, ExecBlock(stmt.body));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Status Evaluator::Assign(const Target& target, Value value) {
  if (!target.field.empty()) {
    const Value* object = FindVariable(target.names.front());
    if (object == nullptr || !object->Is(Value::Kind::kNamespace)) {
      return TypeError("'" + target.names.front() +
                       "' is not a namespace: its attributes cannot be set");
    }
    object->ns()->Set(target.field, std::move(value));
    return OkStatus();
  }
  if (!target.unpacks) {
    SetVariable(target.names.front(), std::move(value));
    return OkStatus();
  }
  RENGA_ASSIGN_OR_RETURN(std::vector<Value> parts, Iterate(budget_, value));
  if (parts.size() != target.names.size()) {
    return TypeError("cannot unpack " + std::to_string(parts.size()) + " values into " +
                     std::to_string(target.names.size()) + " names");
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    SetVariable(target.names[i], std::move(parts[i]));
  }
  return OkStatus();
}

StatusOr<Evaluator::Flow> Evaluator::ExecSet(const Stmt& stmt) {
  RENGA_ASSIGN_OR_RETURN(Value value, Eval(*stmt.expr));
  RENGA_RETURN_IF_ERROR(Assign(stmt.target, std::move(value)));
  return Flow::kNext;
}

StatusOr<Evaluator::Flow> Evaluator::Capture(const Block& block, MarkedText& out) {
  MarkedText* const outer = std::exchange(out_, &out);
  StatusOr<Flow> flow = ExecBlock(block);
  out_ = outer;
  return flow;
}

StatusOr<Value> Evaluator::Filtered(const std::vector<ExprPtr>& filters,
                                    MarkedText text) {
  Value value = Value::String(std::move(text));
  for (const ExprPtr& filter : filters) {
    RENGA_ASSIGN_OR_RETURN(value, EvalFilter(*filter, &value));
  }
  return value;
}

StatusOr<Evaluator::Flow> Evaluator::ExecSetBlock(const Stmt& stmt) {
  MarkedText text;
  {
    const ScopeGuard scope(*this, scope_);
    RENGA_ASSIGN_OR_RETURN(const Flow flow, Capture(stmt.body, text));
    if (flow != Flow::kNext) return flow;
  }
  RENGA_ASSIGN_OR_RETURN(Value value, Filtered(stmt.filters, std::move(text)));
  RENGA_RETURN_IF_ERROR(Assign(stmt.target, std::move(value)));
  return Flow::kNext;
}

StatusOr<Evaluator::Flow> Evaluator::ExecFilterBlock(const Stmt& stmt) {
  MarkedText text;
  {
    const ScopeGuard scope(*this, scope_);
    RENGA_ASSIGN_OR_RETURN(const Flow flow, Capture(stmt.body, text));
    if (flow != Flow::kNext) return flow;
  }
  RENGA_ASSIGN_OR_RETURN(const Value value, Filtered(stmt.filters, std::move(text)));
  RENGA_ASSIGN_OR_RETURN(const MarkedText filtered, ToText(budget_, value));
  Append(*out_, filtered);
  return Flow::kNext;
}

Value Evaluator::KeepMacro(const Stmt& definition) {
  macros_.push_back({&definition, scope_});
  return Value::Of(&macros_.back());
}

StatusOr<Evaluator::Flow> Evaluator::ExecMacro(const Stmt& stmt) {
  SetVariable(stmt.name, KeepMacro(stmt));
  return Flow::kNext;
}

StatusOr<Evaluator::Flow> Evaluator::ExecCall(const Stmt& stmt) {
  const Value caller = KeepMacro(stmt);
  const StatusOr<Value> value = EvalCall(*stmt.expr, &caller);
  if (!value.ok()) return value.status();
  RENGA_ASSIGN_OR_RETURN(const MarkedText text, ToText(budget_, *value));
  Append(*out_, text);
  return Flow::kNext;
}

StatusOr<Evaluator::Flow> Evaluator::ExecWith(const Stmt& stmt) {
  std::vector<Value> values;  // All of them see the scope outside.
  for (const auto& [target, expr] : stmt.bindings) {
    RENGA_ASSIGN_OR_RETURN(Value value, Eval(*expr));
    values.push_back(std::move(value));
  }
  const ScopeGuard scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) {
    SetVariable(stmt.bindings[i].first.names.front(), std::move(values[i]));
  }
  return ExecBlock(stmt.body);
}

StatusOr<Evaluator::Flow> Evaluator::ExecScope(const Stmt& stmt) {
  const ScopeGuard scope(*this, scope_);
  return ExecBlock(stmt.body);
}

void Evaluator::SetVariable(std::string_view name, Value value) {
  for (auto& [key, old] : scope_->variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  scope_->variables.emplace_back(name, std::move(value));
}

const Value* Evaluator::FindVariable(std::string_view name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  for (const auto& [key, value] : context_) {
    if (key == name) return &value;
  }
  return nullptr;
}

}  // namespace renga::jinja
