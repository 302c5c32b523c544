// The syntax tree of a template: what the parser makes and the evaluator walks.
//
// Nodes are at most kMaxTreeHeight high (the parser refuses more), so that walking and
// freeing a tree cannot exhaust the stack.
//
// Thread safety: immutable after parsing.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace renga::jinja {

inline constexpr int kMaxTreeHeight = 150;

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct Keyword {
  std::string name;
  ExprPtr value;
};

// children / keywords by kind:
struct Expr {
  enum class Kind : uint8_t {
    kLiteral,      // value
    kName,         // name
    kList,         // items
    kTuple,        // items
    kDict,         // key, value, key, value, ...
    kAttribute,    // object; name
    kSubscript,    // object, index
    kSlice,        // object, start, stop, step (absent ones: nullptr)
    kCall,         // callee, arguments...; keywords
    kFilter,       // input, arguments...; name, keywords
    kTest,         // input, arguments...; name, keywords
    kNot,          // operand
    kNegative,     // operand
    kPositive,     // operand
    kAnd,          // left, right
    kOr,           // left, right
    kBinary,       // left, right; name is the operator: + - * / // % **
    kConcat,       // operands...
    kCompare,      // first, then one operand per entry of `operators`
    kConditional,  // condition, then, else (absent: nullptr)
  };
  Kind kind = Kind::kLiteral;
  size_t offset = 0;  // In the source, for errors.
  int height = 1;
  std::string name;
  Value value;
  std::vector<ExprPtr> children;
  std::vector<Keyword> keywords;
  std::vector<std::string> operators;  // "==", "<", "in", "not in", ...
};

struct Stmt;
using Block = std::vector<std::unique_ptr<const Stmt>>;

// What an assignment or a loop binds.
struct Target {
  std::vector<std::string> names;  // One, or several that unpack a sequence.
  std::string field;               // names[0].field of a namespace, if not empty.
  bool unpacks = false;
};

struct Parameter {
  std::string name;
  ExprPtr fallback;  // nullptr: none.
};

struct Branch {
  ExprPtr condition;  // nullptr: else.
  Block body;
};

struct Stmt {
  enum class Kind : uint8_t {
    kData,      // data
    kOutput,    // expr
    kIf,        // branches
    kFor,       // target, expr (sequence), filter, body, otherwise
    kSet,       // target, expr
    kSetBlock,  // target, body, filters
    kMacro,     // name, parameters, body
    kCall,      // expr (a call), parameters, body
    kFilter,    // body, filters
    kWith,      // bindings, body
    kScope,     // body (generation blocks)
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kData;
  size_t offset = 0;
  std::string data;
  std::string name;
  Target target;
  ExprPtr expr;
  ExprPtr filter;                // Of a for: keeps the items for which it is true.
  std::vector<ExprPtr> filters;  // kFilter expressions whose input is nullptr: the body.
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Block body;
  Block otherwise;
};

// A macro as a value: its text, and the scope in which its free names are looked up.
// shared_ptr: the scope may have ended for everyone but the macro.
struct Scope;
struct Macro {
  const Stmt* definition = nullptr;
  std::shared_ptr<Scope> scope;
};

}  // namespace renga::jinja
