#include "text/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/status_macros.h"
#include "text/jinja/marked.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/jinja/to_json.h"
#include "text/utf8.h"

namespace renga::jinja {
namespace {

using Kind = Value::Kind;

StatusOr<int64_t> IntArg(const FilterCall& call, size_t index, std::string_view name,
                         int64_t fallback) {
  const Value* value = call.args.Find(index, name);
  if (value == nullptr || value->Is(Kind::kNone)) return fallback;
  if (!value->Is(Kind::kInt) && !value->Is(Kind::kBool)) {
    return TypeError(std::string(call.name) + " needs an integer, not " +
                     std::string(value->TypeName()));
  }
  return value->integer();
}

// Filters that are the string method of the same or another name on str(input).
StatusOr<Value> AsMethod(const FilterCall& call) {
  RENGA_ASSIGN_OR_RETURN(MarkedText text, ToText(call.budget, call.input));
  const std::string_view name = call.name == "trim" ? "strip" : call.name;
  return CallMethod(
      call.budget,
      {std::make_shared<const Value>(Value::String(std::move(text))), std::string(name)},
      call.args);
}

StatusOr<Value> AsString(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  RENGA_ASSIGN_OR_RETURN(MarkedText text, ToText(call.budget, call.input));
  return Value::String(std::move(text));
}

StatusOr<Value> Default(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"default_value", "boolean"}));
  const Value* boolean = call.args.Find(1, "boolean");
  const bool when_false = boolean != nullptr && boolean->Truthy();
  const bool missing =
      call.input.Is(Kind::kUndefined) || (when_false && !call.input.Truthy());
  if (!missing) return call.input;
  const Value* fallback = call.args.Find(0, "default_value");
  return fallback == nullptr ? Value::String({}) : *fallback;
}

StatusOr<Value> Length(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  switch (call.input.kind()) {
    case Kind::kUndefined:
      return Value::Int(0);
    case Kind::kString:
      RENGA_RETURN_IF_ERROR(
          call.budget.Walk(static_cast<int64_t>(call.input.string().size())));
      return Value::Int(CountCharacters(call.input.string()));
    case Kind::kList:
      return Value::Int(static_cast<int64_t>(call.input.list().items.size()));
    case Kind::kDict:
      return Value::Int(static_cast<int64_t>(call.input.dict().entries.size()));
    default:
      return TypeError("object of type '" + std::string(call.input.TypeName()) +
                       "' has no length");
  }
}

StatusOr<Value> Json(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(
      call.args.Check(call.name, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  const Value* ascii = call.args.Find(0, "ensure_ascii");
  style.ensure_ascii = ascii != nullptr && ascii->Truthy();
  const Value* sort = call.args.Find(3, "sort_keys");
  style.sort_keys = sort != nullptr && sort->Truthy();
  const Value* indent = call.args.Find(1, "indent");
  if (indent != nullptr && !indent->Is(Kind::kNone)) {
    RENGA_ASSIGN_OR_RETURN(style.indent, IntArg(call, 1, "indent", 0));
    style.item_separator = ",";
  }
  const Value* separators = call.args.Find(2, "separators");
  if (separators != nullptr && !separators->Is(Kind::kNone)) {
    if (!separators->Is(Kind::kList) || separators->list().items.size() != 2 ||
        !separators->list().items[0].Is(Kind::kString) ||
        !separators->list().items[1].Is(Kind::kString)) {
      return TypeError("tojson needs two strings as separators");
    }
    style.item_separator = separators->list().items[0].string();
    style.key_separator = separators->list().items[1].string();
  }
  RENGA_ASSIGN_OR_RETURN(std::string json, ToJson(call.budget, call.input, style));
  return Value::String(PlainText(std::move(json)));
}

StatusOr<Value> Escape(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  RENGA_ASSIGN_OR_RETURN(const MarkedText text, ToText(call.budget, call.input));
  RENGA_RETURN_IF_ERROR(call.budget.Make(static_cast<int64_t>(text.text.size()) * 4));
  std::string out;
  for (const char c : text.text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return Value::String(Changed(text, std::move(out)));
}

StatusOr<Value> ToInt(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"default"}));
  RENGA_ASSIGN_OR_RETURN(const int64_t fallback, IntArg(call, 0, "default", 0));
  if (call.input.Is(Kind::kFloat)) {
    const double value = call.input.number();
    if (!(std::fabs(value) < 9.2e18)) return Value::Int(fallback);
    return Value::Int(static_cast<int64_t>(value));
  }
  if (call.input.IsNumber()) return Value::Int(call.input.integer());
  if (!call.input.Is(Kind::kString)) return Value::Int(fallback);
  const std::string& s = call.input.string();
  const ByteRange kept = Stripped(s, "", {});
  const char* begin = s.data() + kept.begin + (s[kept.begin] == '+' ? 1 : 0);
  double value = 0;
  int64_t integer = 0;
  const char* end = s.data() + kept.end;
  if (begin < end) {
    if (const auto r = std::from_chars(begin, end, integer);
        r.ptr == end && r.ec == std::errc())
      return Value::Int(integer);
    const auto r = std::from_chars(begin, end, value);
    if (r.ptr == end && r.ec == std::errc() && std::fabs(value) < 9.2e18) {
      return Value::Int(static_cast<int64_t>(value));
    }
  }
  return Value::Int(fallback);
}

StatusOr<Value> ToFloat(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"default"}));
  if (call.input.IsNumber()) return Value::Float(call.input.number());
  const Value* fallback = call.args.Find(0, "default");
  if (call.input.Is(Kind::kString)) {
    const std::string& s = call.input.string();
    const ByteRange kept = Stripped(s, "", {});
    double value = 0;
    const auto r = std::from_chars(s.data() + kept.begin, s.data() + kept.end, value);
    if (kept.begin < kept.end && r.ptr == s.data() + kept.end && r.ec == std::errc()) {
      return Value::Float(value);
    }
  }
  return fallback == nullptr ? Value::Float(0.0) : *fallback;
}

StatusOr<Value> Absolute(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  if (call.input.Is(Kind::kUndefined)) return UndefinedError(call.input);
  if (!call.input.IsNumber()) return TypeError("abs needs a number");
  return call.input.number() < 0 ? Negated(call.input) : call.input;
}

StatusOr<Value> Round(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"precision", "method"}));
  if (!call.input.IsNumber()) return TypeError("round needs a number");
  RENGA_ASSIGN_OR_RETURN(const int64_t precision, IntArg(call, 0, "precision", 0));
  if (precision < 0 || precision > 15) return TypeError("round to 0 to 15 places only");
  const Value* method = call.args.Find(1, "method");
  if (method == nullptr && !call.input.Is(Kind::kFloat)) return call.input;
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = call.input.number() * scale;
  if (method != nullptr && method->Is(Kind::kString) && method->string() == "floor") {
    return Value::Float(std::floor(scaled) / scale);
  }
  if (method != nullptr && method->Is(Kind::kString) && method->string() == "ceil") {
    return Value::Float(std::ceil(scaled) / scale);
  }
  return Value::Float(std::nearbyint(scaled) / scale);
}

// Puts `prefix` before every line but the first; blank lines stay blank.
StatusOr<Value> Indent(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"width", "first", "blank"}));
  const Value* width = call.args.Find(0, "width");
  MarkedText prefix = TrustedText("    ");
  if (width != nullptr && width->Is(Kind::kString)) {
    prefix = width->text();
  } else {
    RENGA_ASSIGN_OR_RETURN(const int64_t spaces, IntArg(call, 0, "width", 4));
    if (spaces > 64) return TypeError("an indent above 64");
    prefix =
        TrustedText(std::string(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' '));
  }
  const Value* first = call.args.Find(1, "first");
  const Value* blank = call.args.Find(2, "blank");
  const bool indents_blank = blank != nullptr && blank->Truthy();
  RENGA_ASSIGN_OR_RETURN(const MarkedText text, ToText(call.budget, call.input));
  MarkedText out;
  bool indents = first != nullptr && first->Truthy();
  for (size_t begin = 0; begin <= text.text.size();) {
    const size_t newline = text.text.find('\n', begin);
    const size_t end = newline == std::string::npos ? text.text.size() : newline + 1;
    const bool is_blank = newline == begin || begin == text.text.size();
    RENGA_RETURN_IF_ERROR(call.budget.Make(static_cast<int64_t>(prefix.text.size())));
    if (indents && (!is_blank || indents_blank)) Append(out, prefix);
    AppendSlice(out, text, begin, end);
    indents = true;
    if (newline == std::string::npos) break;
    begin = end;
  }
  return Value::String(std::move(out));
}

StatusOr<Value> WordCount(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  RENGA_ASSIGN_OR_RETURN(MarkedText text, ToText(call.budget, call.input));
  RENGA_ASSIGN_OR_RETURN(
      const Value words,
      CallMethod(call.budget,
                 {std::make_shared<const Value>(Value::String(std::move(text))), "split"},
                 {}));
  return Value::Int(static_cast<int64_t>(words.list().items.size()));
}

StatusOr<Value> Attr(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"name"}));
  const Value* name = call.args.Find(0, "name");
  if (name == nullptr || !name->Is(Kind::kString)) return TypeError("attr needs a name");
  return GetAttribute(call.budget, call.input, name->string());
}

struct FilterEntry {
  std::string_view name;
  FilterFn fn;
};

constexpr FilterEntry kScalarFilters[] = {
    {"trim", AsMethod},   {"upper", AsMethod},      {"lower", AsMethod},
    {"title", AsMethod},  {"capitalize", AsMethod}, {"replace", AsMethod},
    {"string", AsString}, {"safe", AsString},       {"default", Default},
    {"d", Default},       {"length", Length},       {"count", Length},
    {"tojson", Json},     {"escape", Escape},       {"e", Escape},
    {"int", ToInt},       {"float", ToFloat},       {"abs", Absolute},
    {"round", Round},     {"indent", Indent},       {"wordcount", WordCount},
    {"attr", Attr}};

}  // namespace

FilterFn FindScalarFilter(std::string_view name) {
  for (const FilterEntry& entry : kScalarFilters) {
    if (entry.name == name) return entry.fn;
  }
  return nullptr;
}

bool HasFilter(std::string_view name) {
  return FindScalarFilter(name) != nullptr || FindSequenceFilter(name) != nullptr;
}

StatusOr<Value> ApplyFilter(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.budget.Step());
  if (const FilterFn fn = FindScalarFilter(call.name)) return fn(call);
  if (const FilterFn fn = FindSequenceFilter(call.name)) return fn(call);
  return TypeError("no filter named '" + std::string(call.name) + "'");
}

}  // namespace renga::jinja
