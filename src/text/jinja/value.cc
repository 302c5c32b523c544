#include "text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/marked.h"
#include "text/utf8.h"

namespace renga::jinja {
namespace {

Status TooDeep() {
  return Status(StatusCode::kResourceExhausted, "a value is nested too deeply");
}

// Saturates: far above every budget.
int64_t AddWeights(int64_t a, int64_t b) {
  constexpr int64_t kMax = int64_t{1} << 60;
  return std::min(kMax, a + std::min(kMax, b));
}

bool EqualLists(const List& a, const List& b) {
  if (a.items.size() != b.items.size() || a.is_tuple != b.is_tuple) return false;
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), Equal);
}

bool EqualDicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = FindEntry(b, key);
    if (other == nullptr || !Equal(value, *other)) return false;
  }
  return true;
}

void AppendEscaped(char32_t code, MarkedText& out) {
  char buffer[16];
  const auto value = static_cast<unsigned>(code);
  if (value < 0x100) {
    std::snprintf(buffer, sizeof buffer, "\\x%02x", value);
  } else {
    std::snprintf(buffer, sizeof buffer, value < 0x10000 ? "\\u%04x" : "\\U%08x", value);
  }
  AppendPlain(out, buffer);
}

// The quotes and escapes of a repr are plain: they stand between outside text.
void AppendQuoted(const MarkedText& text, MarkedText& out) {
  const std::string& s = text.text;
  const bool single =
      s.find('\'') == std::string::npos || s.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  AppendPlain(out, {&quote, 1});
  for (size_t at = 0; at < s.size();) {
    const Utf8Char c = DecodeUtf8(std::string_view(s).substr(at));
    const size_t end = at + c.length;
    if (c.code == '\\' || c.code == static_cast<char32_t>(quote)) {
      AppendPlain(out, "\\");
      AppendSlice(out, text, at, end);
    } else if (c.code == '\n') {
      AppendPlain(out, "\\n");
    } else if (c.code == '\r') {
      AppendPlain(out, "\\r");
    } else if (c.code == '\t') {
      AppendPlain(out, "\\t");
    } else if (c.verdict == Utf8Char::Verdict::kValid && !IsPrintable(c.code)) {
      AppendEscaped(c.code, out);
    } else {
      AppendSlice(out, text, at, end);
    }
    at = end;
  }
  AppendPlain(out, {&quote, 1});
}

void AppendListRepr(const List& list, MarkedText& out) {
  AppendPlain(out, list.is_tuple ? "(" : "[");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) AppendPlain(out, ", ");
    AppendRepr(list.items[i], out);
  }
  if (list.is_tuple) {
    AppendPlain(out, list.items.size() == 1 ? ",)" : ")");
  } else {
    AppendPlain(out, "]");
  }
}

void AppendDictRepr(const Dict& dict, MarkedText& out) {
  AppendPlain(out, "{");
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) AppendPlain(out, ", ");
    first = false;
    AppendRepr(key, out);
    AppendPlain(out, ": ");
    AppendRepr(value, out);
  }
  AppendPlain(out, "}");
}

}  // namespace

StatusOr<Value> Value::MakeList(std::vector<Value> items, bool is_tuple) {
  List list{.items = std::move(items), .is_tuple = is_tuple};
  for (const Value& item : list.items) {
    list.depth = std::max(list.depth, item.depth() + 1);
    list.weight = AddWeights(list.weight, item.weight());
  }
  if (list.depth > kMaxValueDepth) return TooDeep();
  return Value(
      State(std::in_place_index<6>, std::make_shared<const List>(std::move(list))));
}

StatusOr<Value> Value::MakeDict(std::vector<std::pair<Value, Value>> entries) {
  Dict dict{.entries = std::move(entries)};
  for (const auto& [key, value] : dict.entries) {
    dict.depth = std::max({dict.depth, key.depth() + 1, value.depth() + 1});
    dict.weight = AddWeights(dict.weight, AddWeights(key.weight(), value.weight()));
  }
  // Comparing two dicts looks every key up among all others.
  const auto size = static_cast<int64_t>(dict.entries.size());
  dict.weight = AddWeights(dict.weight, size * size / 64);
  if (dict.depth > kMaxValueDepth) return TooDeep();
  return Value(
      State(std::in_place_index<7>, std::make_shared<const Dict>(std::move(dict))));
}

Value Value::Method(Value self, std::string name) {
  return Value(
      State(std::in_place_index<10>,
            std::make_shared<const BoundMethod>(BoundMethod{
                std::make_shared<const Value>(std::move(self)), std::move(name)})));
}

bool Value::Truthy() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return integer() != 0;
    case Kind::kFloat:
      return number() != 0.0;
    case Kind::kString:
      return !string().empty();
    case Kind::kList:
      return !list().items.empty();
    case Kind::kDict:
      return !dict().entries.empty();
    default:
      return true;
  }
}

std::string_view Value::TypeName() const {
  switch (kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return list().is_tuple ? "tuple" : "list";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    default:
      return "function";
  }
}

int Value::depth() const {
  switch (kind()) {
    case Kind::kList:
      return list().depth;
    case Kind::kDict:
      return dict().depth;
    case Kind::kMethod:
      return method().self->depth() + 1;
    case Kind::kLoop:
      return loop().items.depth() + 1;
    default:
      return 0;
  }
}

int64_t Value::weight() const {
  switch (kind()) {
    case Kind::kString:
      return 1 + static_cast<int64_t>(string().size());
    case Kind::kList:
      return list().weight;
    case Kind::kDict:
      return dict().weight;
    default:
      return 1;
  }
}

const Value* Namespace::Find(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::Set(std::string_view name, Value value) {
  for (auto& [key, old] : fields) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  fields.emplace_back(std::string(name), std::move(value));
}

bool Equal(const Value& a, const Value& b) {
  using Kind = Value::Kind;
  if (a.IsNumber() && b.IsNumber()) {
    if (a.Is(Kind::kFloat) || b.Is(Kind::kFloat)) return a.number() == b.number();
    return a.integer() == b.integer();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.string() == b.string();
    case Kind::kList:
      return EqualLists(a.list(), b.list());
    case Kind::kDict:
      return EqualDicts(a.dict(), b.dict());
    case Kind::kNamespace:
      return a.ns() == b.ns();
    case Kind::kMacro:
      return a.macro() == b.macro();
    case Kind::kBuiltin:
      return a.builtin().name == b.builtin().name;
    default:
      return false;
  }
}

const Value* FindEntry(const Dict& dict, const Value& key) {
  for (const auto& [candidate, value] : dict.entries) {
    if (Equal(candidate, key)) return &value;
  }
  return nullptr;
}

const Value* FindEntry(const Dict& dict, std::string_view key) {
  for (const auto& [candidate, value] : dict.entries) {
    if (candidate.Is(Value::Kind::kString) && candidate.string() == key) return &value;
  }
  return nullptr;
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[40];
  const auto scientific =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific);
  std::string shortest(digits, scientific.ptr);
  const int exponent = std::stoi(shortest.substr(shortest.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return shortest;
  const auto fixed =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed);
  std::string text(digits, fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

void AppendText(const Value& value, MarkedText& out) {
  if (value.Is(Value::Kind::kString)) {
    Append(out, value.text());
  } else if (!value.Is(Value::Kind::kUndefined)) {
    AppendRepr(value, out);
  }
}

void AppendRepr(const Value& value, MarkedText& out) {
  using Kind = Value::Kind;
  switch (value.kind()) {
    case Kind::kUndefined:
      AppendPlain(out, "Undefined");
      return;
    case Kind::kNone:
      AppendPlain(out, "None");
      return;
    case Kind::kBool:
      AppendPlain(out, value.boolean() ? "True" : "False");
      return;
    case Kind::kInt:
      AppendPlain(out, std::to_string(value.integer()));
      return;
    case Kind::kFloat:
      AppendPlain(out, FloatText(value.number()));
      return;
    case Kind::kString:
      AppendQuoted(value.text(), out);
      return;
    case Kind::kList:
      AppendListRepr(value.list(), out);
      return;
    case Kind::kDict:
      AppendDictRepr(value.dict(), out);
      return;
    default:
      AppendPlain(out, "<");
      AppendPlain(out, value.TypeName());
      AppendPlain(out, ">");
  }
}

}  // namespace renga::jinja
