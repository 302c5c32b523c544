// Value: what a template expression yields.
//
// Strings are MarkedText, so their origin survives every operation. Lists and dicts never
// change once made (as in the sandbox of the reference), are shared by all values that
// name them, and are at most kMaxValueDepth deep, so that walking and freeing them cannot
// exhaust the stack. Namespaces, which do change, and macros belong to one rendering and
// are named by plain pointers; no cycle of owners can arise.
//
// shared_ptr here: an immutable string, list or dict has as many owners as there are
// values naming it (variables, arguments, elements).
//
// Thread safety: immutable, except namespaces (one rendering, one thread).

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "renga/status.h"
#include "renga/tokenizer.h"

namespace renga::jinja {

inline constexpr int kMaxValueDepth = 64;

class Value;
struct Macro;
struct Namespace;
struct LoopState;

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;       // 1 + that of the deepest item.
  int64_t weight = 1;  // See Value::weight.
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // In order of insertion.
  int depth = 1;
  int64_t weight = 1;
};

// A method taken from a value and not called yet ("x.items").
struct BoundMethod {
  std::shared_ptr<const Value> self;
  std::string name;
};

// A function of the language itself: range, namespace, raise_exception, ...
struct Builtin {
  std::string_view name;  // Of a static table.
};

class Value {
 public:
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kList,
    kDict,
    kNamespace,
    kMacro,
    kMethod,
    kBuiltin,
    kLoop,
  };

  // `hint` says what was missing, for the error of a use that needs a value.
  static Value Undefined(std::string hint) {
    return Value(State(std::in_place_index<0>,
                       std::make_shared<const std::string>(std::move(hint))));
  }
  static Value None() { return Value(State(std::in_place_index<1>)); }
  static Value Bool(bool value) { return Value(State(std::in_place_index<2>, value)); }
  static Value Int(int64_t value) { return Value(State(std::in_place_index<3>, value)); }
  static Value Float(double value) { return Value(State(std::in_place_index<4>, value)); }
  static Value String(MarkedText text) {
    return Value(State(std::in_place_index<5>,
                       std::make_shared<const MarkedText>(std::move(text))));
  }
  // Deeper than kMaxValueDepth is an error.
  static StatusOr<Value> MakeList(std::vector<Value> items, bool is_tuple = false);
  static StatusOr<Value> MakeDict(std::vector<std::pair<Value, Value>> entries);
  static Value Of(Namespace* ns) { return Value(State(std::in_place_index<8>, ns)); }
  static Value Of(const Macro* macro) {
    return Value(State(std::in_place_index<9>, macro));
  }
  static Value Method(Value self, std::string name);
  static Value Of(Builtin builtin) {
    return Value(State(std::in_place_index<11>, builtin));
  }
  static Value Of(std::shared_ptr<const LoopState> loop) {
    return Value(State(std::in_place_index<12>, std::move(loop)));
  }

  Value() : Value(State(std::in_place_index<1>)) {}

  Kind kind() const { return static_cast<Kind>(state_.index()); }
  bool Is(Kind kind_wanted) const { return kind() == kind_wanted; }
  bool IsNumber() const { return Is(Kind::kInt) || Is(Kind::kFloat) || Is(Kind::kBool); }

  // REQUIRES: the kind.
  const std::string& hint() const { return *std::get<0>(state_); }
  bool boolean() const { return std::get<2>(state_); }
  int64_t integer() const {  // Bool or int.
    return Is(Kind::kBool) ? int64_t{boolean()} : std::get<3>(state_);
  }
  double number() const {  // Bool, int or float.
    return Is(Kind::kFloat) ? std::get<4>(state_) : static_cast<double>(integer());
  }
  const MarkedText& text() const { return *std::get<5>(state_); }
  const std::string& string() const { return text().text; }
  const List& list() const { return *std::get<6>(state_); }
  const Dict& dict() const { return *std::get<7>(state_); }
  Namespace* ns() const { return std::get<8>(state_); }
  const Macro* macro() const { return std::get<9>(state_); }
  const BoundMethod& method() const { return *std::get<10>(state_); }
  Builtin builtin() const { return std::get<11>(state_); }
  const LoopState& loop() const { return *std::get<12>(state_); }

  bool Truthy() const;
  // As Python names it: "str", "dict", ...
  std::string_view TypeName() const;
  int depth() const;
  // Bytes and nodes that a walk over the value meets, shared parts counted every time
  // (a value of 64 levels can stand for 2^64 nodes): what a walk is charged beforehand.
  int64_t weight() const;

 private:
  using State = std::variant<std::shared_ptr<const std::string>, std::monostate, bool,
                             int64_t, double, std::shared_ptr<const MarkedText>,
                             std::shared_ptr<const List>, std::shared_ptr<const Dict>,
                             Namespace*, const Macro*, std::shared_ptr<const BoundMethod>,
                             Builtin, std::shared_ptr<const LoopState>>;
  explicit Value(State state) : state_(std::move(state)) {}

  State state_;
};

// What `namespace(...)` makes: the one thing that a template may change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> fields;

  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
};

// The variable `loop` inside a for.
struct LoopState {
  Value items;  // The list that is walked.
  int64_t index0 = 0;
};

// Python's ==. Costs are bounded by the size of the smaller value.
bool Equal(const Value& a, const Value& b);

// The entry of `key`, or nullptr.
const Value* FindEntry(const Dict& dict, const Value& key);
const Value* FindEntry(const Dict& dict, std::string_view key);

// str(value): appends to `out` with marks; undefined is empty.
void AppendText(const Value& value, MarkedText& out);
// repr(value): strings in quotes. Text that came from outside stays marked so.
void AppendRepr(const Value& value, MarkedText& out);

// repr() of a float: the shortest digits that read back, "1.0", "1e+20".
std::string FloatText(double value);

}  // namespace renga::jinja
