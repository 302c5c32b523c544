#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status_macros.h"
#include "text/jinja/marked.h"
#include "text/jinja/methods.h"
#include "text/jinja/strings.h"
#include "text/utf8.h"

namespace renga::jinja {
namespace {

using Kind = Value::Kind;

std::string Names(const Value& a, const Value& b) {
  return Quoted(a.TypeName()) + " and " + Quoted(b.TypeName());
}

Status Unsupported(std::string_view op, const Value& a, const Value& b) {
  return TypeError("unsupported operand types for " + std::string(op) + ": " +
                   Names(a, b));
}

Status Overflow() { return TypeError("the number is too large"); }

StatusOr<Value> Power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  // Above 64 factors every base but -1, 0 and 1 overflows.
  if (exponent > 64 && base >= -1 && base <= 1) exponent = 64 + exponent % 2;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return Overflow();
  }
  return Value::Int(result);
}

StatusOr<Value> IntegerDivision(std::string_view op, int64_t a, int64_t b) {
  if (b == 0) return TypeError("division by zero");
  if (b == -1) {  // The one quotient that can overflow.
    if (op == "%") return Value::Int(0);
    if (a == std::numeric_limits<int64_t>::min()) return Overflow();
    return Value::Int(-a);
  }
  int64_t quotient = a / b;
  int64_t rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return Value::Int(op == "%" ? rest : quotient);
}

StatusOr<Value> Integers(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) return Overflow();
    return Value::Int(result);
  }
  if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) return Overflow();
    return Value::Int(result);
  }
  if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result)) return Overflow();
    return Value::Int(result);
  }
  if (op == "**" && b >= 0) return Power(a, b);
  if (op == "//" || op == "%") return IntegerDivision(op, a, b);
  if (op == "/" && b == 0) return TypeError("division by zero");
  const auto x = static_cast<double>(a);
  const auto y = static_cast<double>(b);
  return Value::Float(op == "/" ? x / y : std::pow(x, y));
}

StatusOr<Value> Floats(std::string_view op, double a, double b) {
  if (op == "+") return Value::Float(a + b);
  if (op == "-") return Value::Float(a - b);
  if (op == "*") return Value::Float(a * b);
  if (op == "**") return Value::Float(std::pow(a, b));
  if (b == 0.0) return TypeError("division by zero");
  if (op == "/") return Value::Float(a / b);
  const double floored = std::floor(a / b);
  return Value::Float(op == "//" ? floored : a - b * floored);
}

StatusOr<Value> Joined(Budget& budget, const Value& a, const Value& b) {
  RENGA_RETURN_IF_ERROR(
      budget.Make(static_cast<int64_t>(a.string().size() + b.string().size())));
  MarkedText text = a.text();
  Append(text, b.text());
  return Value::String(std::move(text));
}

StatusOr<Value> JoinedLists(Budget& budget, const Value& a, const Value& b) {
  const List& left = a.list();
  const List& right = b.list();
  RENGA_RETURN_IF_ERROR(
      budget.Step(static_cast<int64_t>(left.items.size() + right.items.size())));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return Value::MakeList(std::move(items), left.is_tuple);
}

StatusOr<Value> Repeated(Budget& budget, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const bool is_string = value.Is(Kind::kString);
  const auto size =
      static_cast<int64_t>(is_string ? value.string().size() : value.list().items.size());
  int64_t total = 0;
  if (__builtin_mul_overflow(size, times, &total)) return Overflow();
  RENGA_RETURN_IF_ERROR(is_string ? budget.Make(total) : budget.Step(total));
  if (size == 0) return value;
  if (is_string) {
    MarkedText text;
    for (; times > 0; --times) Append(text, value.text());
    return Value::String(std::move(text));
  }
  std::vector<Value> items;
  for (; times > 0; --times) {
    items.insert(items.end(), value.list().items.begin(), value.list().items.end());
  }
  return Value::MakeList(std::move(items), value.list().is_tuple);
}

bool Repeats(const Value& value) {
  return value.Is(Kind::kString) || value.Is(Kind::kList);
}
bool IsInteger(const Value& value) {
  return value.Is(Kind::kInt) || value.Is(Kind::kBool);
}

// <0, 0, >0 for values that Python orders.
StatusOr<int> Order(std::string_view op, const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.Is(Kind::kFloat) || b.Is(Kind::kFloat)) {
      const double x = a.number();
      const double y = b.number();
      if (std::isnan(x) || std::isnan(y)) return TypeError("NaN has no order");
      return x < y ? -1 : x > y ? 1 : 0;
    }
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  }
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) return a.string().compare(b.string());
  if (a.Is(Kind::kList) && b.Is(Kind::kList)) {
    const auto& x = a.list().items;
    const auto& y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!Equal(x[i], y[i])) return Order(op, x[i], y[i]);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  if (a.Is(Kind::kUndefined)) return UndefinedError(a);
  if (b.Is(Kind::kUndefined)) return UndefinedError(b);
  return TypeError(Quoted(op) + " is not supported between " + Names(a, b));
}

StatusOr<bool> Contains(Budget& budget, const Value& item, const Value& in) {
  RENGA_RETURN_IF_ERROR(budget.Walk(in.weight()));
  switch (in.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.Is(Kind::kString)) {
        return TypeError("'in <string>' needs a string, not " +
                         std::string(item.TypeName()));
      }
      return FindText(in.string(), item.string(), 0) != std::string::npos;
    case Kind::kDict:
      return FindEntry(in.dict(), item) != nullptr;
    case Kind::kList:
      return std::any_of(in.list().items.begin(), in.list().items.end(),
                         [&](const Value& other) { return Equal(item, other); });
    default:
      return TypeError("argument of type '" + std::string(in.TypeName()) +
                       "' is not iterable");
  }
}

Value NoAttribute(const Value& object, std::string_view name) {
  const std::string type =
      object.Is(Kind::kDict) ? "dict object" : std::string(object.TypeName()) + " object";
  return Value::Undefined(Quoted(type) + " has no attribute " + Quoted(name));
}

StatusOr<Value> ItemAt(Budget& budget, const Value& object, int64_t index) {
  const bool is_string = object.Is(Kind::kString);
  if (is_string) {
    RENGA_RETURN_IF_ERROR(budget.Walk(static_cast<int64_t>(object.string().size())));
  }
  const int64_t size = is_string ? CountCharacters(object.string())
                                 : static_cast<int64_t>(object.list().items.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) {
    return Value::Undefined("the " + std::string(object.TypeName()) + " has no item " +
                            std::to_string(index));
  }
  if (!is_string) return object.list().items[static_cast<size_t>(index)];
  const std::string& text = object.string();
  const size_t begin = OffsetOfCharacter(text, index);
  const size_t length = DecodeUtf8(std::string_view(text).substr(begin)).length;
  return Value::String(Slice(object.text(), begin, begin + length));
}

// slice.indices(): the positions that [start:stop:step] picks of `size`.
struct Picks {
  int64_t start = 0;
  int64_t count = 0;
  int64_t step = 1;
};

StatusOr<Picks> ResolveSlice(const SliceBounds& bounds, int64_t size) {
  for (const Value* bound : {&bounds.start, &bounds.stop, &bounds.step}) {
    if (!bound->Is(Kind::kNone) && !IsInteger(*bound)) {
      return TypeError("slice bounds must be integers");
    }
  }
  Picks picks;
  if (!bounds.step.Is(Kind::kNone)) picks.step = bounds.step.integer();
  if (picks.step == 0) return TypeError("the slice step is zero");
  // Steps beyond the size pick one item, like the size itself.
  picks.step = std::clamp(picks.step, -size - 1, size + 1);
  const bool forward = picks.step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? size : size - 1;
  const auto resolve = [&](const Value& bound, int64_t absent) {
    if (bound.Is(Kind::kNone)) return absent;
    int64_t at = bound.integer();
    if (at < 0) at = at < -size ? low : at + size;
    return std::clamp(at, low, high);
  };
  picks.start = resolve(bounds.start, forward ? low : high);
  const int64_t stop = resolve(bounds.stop, forward ? high : low);
  const int64_t span = forward ? stop - picks.start : picks.start - stop;
  const int64_t stride = forward ? picks.step : -picks.step;
  picks.count = span <= 0 ? 0 : (span + stride - 1) / stride;
  return picks;
}

Value SlicedString(const MarkedText& text, const Picks& picks) {
  const std::string& s = text.text;
  if (picks.count == 0) return Value::String({});
  if (picks.step == 1) {
    const size_t begin = OffsetOfCharacter(s, picks.start);
    const size_t length =
        OffsetOfCharacter(std::string_view(s).substr(begin), picks.count);
    return Value::String(Slice(text, begin, begin + length));
  }
  std::vector<size_t> offsets;
  for (size_t at = 0; at < s.size();) {
    offsets.push_back(at);
    at += DecodeUtf8(std::string_view(s).substr(at)).length;
  }
  offsets.push_back(s.size());
  MarkedText out;
  for (int64_t i = 0; i < picks.count; ++i) {
    const auto at = static_cast<size_t>(picks.start + i * picks.step);
    AppendSlice(out, text, offsets[at], offsets[at + 1]);
  }
  return Value::String(std::move(out));
}

}  // namespace

std::string Quoted(std::string_view name) {
  std::string quoted(1, '\'');
  quoted.append(name).push_back('\'');
  return quoted;
}

Status TypeError(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

Status UndefinedError(const Value& value) { return TypeError(value.hint()); }

StatusOr<Value> Arithmetic(Budget& budget, std::string_view op, const Value& a,
                           const Value& b) {
  if (a.Is(Kind::kUndefined)) return UndefinedError(a);
  if (b.Is(Kind::kUndefined)) return UndefinedError(b);
  if (IsInteger(a) && IsInteger(b)) return Integers(op, a.integer(), b.integer());
  if (a.IsNumber() && b.IsNumber()) return Floats(op, a.number(), b.number());
  if (op == "+" && a.Is(Kind::kString) && b.Is(Kind::kString))
    return Joined(budget, a, b);
  if (op == "+" && a.Is(Kind::kList) && b.Is(Kind::kList) &&
      a.list().is_tuple == b.list().is_tuple) {
    return JoinedLists(budget, a, b);
  }
  if (op == "*" && Repeats(a) && IsInteger(b)) return Repeated(budget, a, b.integer());
  if (op == "*" && IsInteger(a) && Repeats(b)) return Repeated(budget, b, a.integer());
  return Unsupported(op, a, b);
}

StatusOr<Value> Negated(const Value& value) {
  if (value.Is(Kind::kUndefined)) return UndefinedError(value);
  if (value.Is(Kind::kFloat)) return Value::Float(-value.number());
  if (!value.IsNumber()) {
    return TypeError("bad operand type for unary -: '" + std::string(value.TypeName()) +
                     "'");
  }
  return Integers("-", 0, value.integer());
}

StatusOr<bool> Compared(Budget& budget, std::string_view op, const Value& a,
                        const Value& b) {
  RENGA_RETURN_IF_ERROR(budget.Walk(std::min(a.weight(), b.weight())));
  if (op == "==") return Equal(a, b);
  if (op == "!=") return !Equal(a, b);
  if (op == "in") return Contains(budget, a, b);
  if (op == "not in") {
    RENGA_ASSIGN_OR_RETURN(const bool contains, Contains(budget, a, b));
    return !contains;
  }
  RENGA_ASSIGN_OR_RETURN(const int order, Order(op, a, b));
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

StatusOr<Value> GetAttribute(Budget& budget, const Value& object, std::string_view name) {
  if (object.Is(Kind::kUndefined)) return UndefinedError(object);
  if (HasMethod(object, name)) return Value::Method(object, std::string(name));
  if (object.Is(Kind::kDict)) {
    RENGA_RETURN_IF_ERROR(
        budget.Step(static_cast<int64_t>(object.dict().entries.size() / 8)));
    if (const Value* found = FindEntry(object.dict(), name)) return *found;
  } else if (object.Is(Kind::kNamespace)) {
    if (const Value* found = object.ns()->Find(name)) return *found;
  } else if (object.Is(Kind::kLoop)) {
    return LoopAttribute(object.loop(), name);
  }
  return NoAttribute(object, name);
}

StatusOr<Value> GetItem(Budget& budget, const Value& object, const Value& key) {
  if (object.Is(Kind::kUndefined)) return UndefinedError(object);
  if (object.Is(Kind::kDict)) {
    RENGA_RETURN_IF_ERROR(
        budget.Step(static_cast<int64_t>(object.dict().entries.size() / 8)));
    RENGA_RETURN_IF_ERROR(budget.Walk(key.weight()));
    if (const Value* found = FindEntry(object.dict(), key)) return *found;
  } else if (IsInteger(key) && Repeats(object)) {
    return ItemAt(budget, object, key.integer());
  }
  if (key.Is(Kind::kString)) return GetAttribute(budget, object, key.string());
  RENGA_ASSIGN_OR_RETURN(const MarkedText name, ToText(budget, key));
  return NoAttribute(object, name.text);
}

StatusOr<Value> GetSlice(Budget& budget, const Value& object, const SliceBounds& bounds) {
  if (object.Is(Kind::kUndefined)) return UndefinedError(object);
  if (!Repeats(object)) {
    return TypeError(Quoted(object.TypeName()) + " cannot be sliced");
  }
  const bool is_string = object.Is(Kind::kString);
  RENGA_RETURN_IF_ERROR(
      is_string ? budget.Make(static_cast<int64_t>(object.string().size()))
                : budget.Step(static_cast<int64_t>(object.list().items.size())));
  const int64_t size = is_string ? CountCharacters(object.string())
                                 : static_cast<int64_t>(object.list().items.size());
  RENGA_ASSIGN_OR_RETURN(const Picks picks, ResolveSlice(bounds, size));
  if (is_string) return SlicedString(object.text(), picks);
  std::vector<Value> items;
  for (int64_t i = 0; i < picks.count; ++i) {
    items.push_back(
        object.list().items[static_cast<size_t>(picks.start + i * picks.step)]);
  }
  return Value::MakeList(std::move(items), object.list().is_tuple);
}

StatusOr<std::vector<Value>> Iterate(Budget& budget, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kList:
      RENGA_RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(value.list().items.size())));
      return value.list().items;
    case Kind::kDict:
      RENGA_RETURN_IF_ERROR(
          budget.Step(static_cast<int64_t>(value.dict().entries.size())));
      for (const auto& [key, entry] : value.dict().entries) items.push_back(key);
      return items;
    case Kind::kString: {
      const std::string_view text = value.string();
      RENGA_RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(text.size())));
      for (size_t at = 0; at < text.size();) {
        const size_t end = at + DecodeUtf8(text.substr(at)).length;
        items.push_back(Value::String(Slice(value.text(), at, end)));
        at = end;
      }
      return items;
    }
    default:
      return TypeError(Quoted(value.TypeName()) + " object is not iterable");
  }
}

StatusOr<MarkedText> ToText(Budget& budget, const Value& value) {
  RENGA_RETURN_IF_ERROR(budget.Make(value.weight()));
  if (!value.Is(Kind::kString)) RENGA_RETURN_IF_ERROR(budget.Walk(value.weight()));
  MarkedText text;
  AppendText(value, text);
  return text;
}

}  // namespace renga::jinja
