// Runs a parsed template once, within a budget.
//
// Scopes are those of the reference: a loop round, a macro call, a with or generation
// block has its own; an if has none; an assignment goes to the innermost scope. Macros
// see the scope in which they were defined.
//
// Thread rule: one rendering, one thread; make a new evaluator for each.

#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "renga/status.h"
#include "renga/tokenizer.h"
#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/call_args.h"

namespace renga::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

// shared_ptr: a scope is owned by the block that runs in it, by the scopes inside it, and
// by the macros defined in it (which values name by plain pointers: no cycle).
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;  // Names of the tree.
};

class Evaluator {
 public:
  // `source` is for the places in error messages.
  Evaluator(std::string_view source, const Variables& context,
            const RenderLimits& limits);
  ~Evaluator();

  // Codes of the errors: FAILED_PRECONDITION with the bare message is raise_exception;
  // RESOURCE_EXHAUSTED the budget; INVALID_ARGUMENT anything else. The latter two say
  // where.
  StatusOr<MarkedText> Run(const Block& block);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // ---- Statements.
  StatusOr<Flow> ExecBlock(const Block& block);
  StatusOr<Flow> Exec(const Stmt& stmt);
  StatusOr<Flow> ExecOutput(const Stmt& stmt);
  StatusOr<Flow> ExecIf(const Stmt& stmt);
  StatusOr<Flow> ExecFor(const Stmt& stmt);
  StatusOr<Flow> ExecRounds(const Stmt& stmt, const Value& items);
  StatusOr<Flow> ExecSet(const Stmt& stmt);
  StatusOr<Flow> ExecSetBlock(const Stmt& stmt);
  StatusOr<Flow> ExecMacro(const Stmt& stmt);
  StatusOr<Flow> ExecCall(const Stmt& stmt);
  StatusOr<Flow> ExecFilterBlock(const Stmt& stmt);
  StatusOr<Flow> ExecWith(const Stmt& stmt);
  StatusOr<Flow> ExecScope(const Stmt& stmt);
  StatusOr<std::vector<Value>> LoopItems(const Stmt& stmt);
  Status Assign(const Target& target, Value value);
  StatusOr<Value> Filtered(const std::vector<ExprPtr>& filters, MarkedText text);
  // Runs `block` with its output in `out` instead.
  StatusOr<Flow> Capture(const Block& block, MarkedText& out);

  // ---- Expressions.
  StatusOr<Value> Eval(const Expr& expr);
  StatusOr<Value> EvalUnlocated(const Expr& expr);
  StatusOr<Value> EvalName(const Expr& expr);
  StatusOr<Value> EvalList(const Expr& expr);
  StatusOr<Value> EvalDict(const Expr& expr);
  StatusOr<Value> EvalSlice(const Expr& expr);
  StatusOr<Value> EvalCall(const Expr& expr, const Value* caller);
  StatusOr<Value> EvalFilter(const Expr& expr, const Value* input);
  StatusOr<Value> EvalTest(const Expr& expr);
  StatusOr<Value> EvalLogic(const Expr& expr);
  StatusOr<Value> EvalBinary(const Expr& expr);
  StatusOr<Value> EvalConcat(const Expr& expr);
  StatusOr<Value> EvalCompare(const Expr& expr);
  StatusOr<Value> EvalConditional(const Expr& expr);
  // The arguments behind the first child.
  StatusOr<CallArgs> EvalArguments(const Expr& expr);

  // ---- Calls.
  StatusOr<Value> CallMacro(const Macro& macro, const CallArgs& args);
  Status BindParameters(const Stmt& definition, const CallArgs& args);
  StatusOr<Value> CallBuiltin(std::string_view name, const CallArgs& args);
  StatusOr<Value> MakeNamespace(const CallArgs& args);
  StatusOr<Value> MakeRange(const CallArgs& args);

  void SetVariable(std::string_view name, Value value);
  const Value* FindVariable(std::string_view name) const;
  Value KeepMacro(const Stmt& definition);
  Status Located(Status status, size_t offset) const;

  class ScopeGuard;
  class DepthGuard;

  const std::string_view source_;
  const Variables& context_;
  Budget budget_;
  const int32_t max_depth_;
  int32_t depth_ = 0;
  MarkedText output_;
  MarkedText* out_ = &output_;
  std::shared_ptr<Scope> scope_;
  // Named by plain pointers in values; all end with the evaluator.
  std::deque<Macro> macros_;
  std::deque<Namespace> namespaces_;
};

}  // namespace renga::jinja
