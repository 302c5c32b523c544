#include "text/jinja/methods.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/status_macros.h"
#include "text/jinja/marked.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/utf8.h"

namespace renga::jinja {
namespace {

using Kind = Value::Kind;

struct Call {
  Budget& budget;
  const Value& self;
  std::string_view name;
  const CallArgs& args;
};
using MethodFn = StatusOr<Value> (*)(const Call&);
struct MethodEntry {
  std::string_view name;
  MethodFn fn;
};

// A string argument; `fallback` if it is absent or none.
StatusOr<std::string_view> StringArg(const Call& call, size_t index,
                                     std::string_view name, std::string_view fallback) {
  const Value* value = call.args.Find(index, name);
  if (value == nullptr || value->Is(Kind::kNone)) return fallback;
  if (!value->Is(Kind::kString)) {
    return TypeError(std::string(call.name) + "() needs a string, not " +
                     std::string(value->TypeName()));
  }
  return std::string_view(value->string());
}

StatusOr<int64_t> IntArg(const Call& call, size_t index, std::string_view name,
                         int64_t fallback) {
  const Value* value = call.args.Find(index, name);
  if (value == nullptr || value->Is(Kind::kNone)) return fallback;
  if (!value->Is(Kind::kInt) && !value->Is(Kind::kBool)) {
    return TypeError(std::string(call.name) + "() needs an integer, not " +
                     std::string(value->TypeName()));
  }
  return value->integer();
}

StatusOr<Value> Strip(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"chars"}));
  RENGA_ASSIGN_OR_RETURN(const std::string_view chars, StringArg(call, 0, "chars", ""));
  if (chars.size() > 64)
    return TypeError("strip() with more than 64 bytes of characters");
  const ByteRange kept =
      Stripped(call.self.string(), chars,
               {.left = call.name != "rstrip", .right = call.name != "lstrip"});
  return Value::String(Slice(call.self.text(), kept.begin, kept.end));
}

// Pieces between white space; the last one takes the rest once `limit` cuts are made.
StatusOr<Value> SplitOnSpace(const Call& call, int64_t limit) {
  const MarkedText& text = call.self.text();
  const std::string_view s = text.text;
  std::vector<Value> items;
  size_t at = LeadingSpace(s);
  while (at < s.size()) {
    size_t end = at;
    while (end < s.size()) {
      const Utf8Char c = DecodeUtf8(s.substr(end));
      if (IsPythonSpace(c.code)) break;
      end += c.length;
    }
    if (static_cast<int64_t>(items.size()) == limit) end = s.size() - TrailingSpace(s);
    RENGA_RETURN_IF_ERROR(call.budget.Step());
    items.push_back(Value::String(Slice(text, at, end)));
    at = end + LeadingSpace(s.substr(end));
  }
  return Value::MakeList(std::move(items));
}

StatusOr<Value> Split(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"sep", "maxsplit"}));
  RENGA_ASSIGN_OR_RETURN(const std::string_view sep, StringArg(call, 0, "sep", ""));
  RENGA_ASSIGN_OR_RETURN(int64_t limit, IntArg(call, 1, "maxsplit", -1));
  if (limit < 0) limit = std::numeric_limits<int64_t>::max();
  const Value* given = call.args.Find(0, "sep");
  if (given == nullptr || given->Is(Kind::kNone)) return SplitOnSpace(call, limit);
  if (sep.empty()) return TypeError("empty separator");
  const MarkedText& text = call.self.text();
  std::vector<Value> items;
  size_t begin = 0;
  while (static_cast<int64_t>(items.size()) < limit) {
    // Every search starts behind the last match, so all of them read the text once.
    RENGA_RETURN_IF_ERROR(call.budget.Step(1 + static_cast<int64_t>(sep.size() / 16)));
    const size_t found = FindText(text.text, sep, begin);
    if (found == std::string::npos) break;
    items.push_back(Value::String(Slice(text, begin, found)));
    begin = found + sep.size();
  }
  items.push_back(Value::String(Slice(text, begin, text.text.size())));
  return Value::MakeList(std::move(items));
}

StatusOr<Value> RightSplit(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"sep", "maxsplit"}));
  RENGA_ASSIGN_OR_RETURN(const std::string_view sep, StringArg(call, 0, "sep", ""));
  RENGA_ASSIGN_OR_RETURN(int64_t limit, IntArg(call, 1, "maxsplit", -1));
  if (sep.empty()) return TypeError("rsplit() needs a separator");
  if (limit < 0) limit = std::numeric_limits<int64_t>::max();
  if (sep.size() > 64) return TypeError("rsplit() with a separator above 64 bytes");
  const MarkedText& text = call.self.text();
  std::vector<Value> items;
  size_t end = text.text.size();
  while (static_cast<int64_t>(items.size()) < limit && end >= sep.size()) {
    RENGA_RETURN_IF_ERROR(call.budget.Step());
    const size_t found = text.text.rfind(sep, end - sep.size());
    if (found == std::string::npos) break;
    items.push_back(Value::String(Slice(text, found + sep.size(), end)));
    end = found;
  }
  items.push_back(Value::String(Slice(text, 0, end)));
  std::reverse(items.begin(), items.end());
  return Value::MakeList(std::move(items));
}

StatusOr<Value> SplitLines(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"keepends"}));
  const Value* keep = call.args.Find(0, "keepends");
  const MarkedText& text = call.self.text();
  const std::string& s = text.text;
  std::vector<Value> items;
  for (size_t begin = 0; begin < s.size();) {
    RENGA_RETURN_IF_ERROR(call.budget.Step());
    const size_t end = std::min(s.find_first_of("\r\n", begin), s.size());
    size_t next = std::min(end + 1, s.size());
    if (end + 1 < s.size() && s[end] == '\r' && s[end + 1] == '\n') ++next;
    const bool keeps = keep != nullptr && keep->Truthy();
    items.push_back(Value::String(Slice(text, begin, keeps ? next : end)));
    begin = next;
  }
  return Value::MakeList(std::move(items));
}

StatusOr<Value> StartsOrEnds(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"affix"}));
  const Value* given = call.args.Find(0, "affix");
  if (given == nullptr) return TypeError(std::string(call.name) + "() needs an argument");
  const bool tuple = given->Is(Kind::kList) && given->list().is_tuple;
  std::vector<Value> affixes = tuple ? given->list().items : std::vector<Value>{*given};
  for (const Value& affix : affixes) {
    RENGA_RETURN_IF_ERROR(call.budget.Walk(affix.weight()));
    if (!affix.Is(Kind::kString)) {
      return TypeError(std::string(call.name) +
                       "() needs a string or a tuple of strings");
    }
    const std::string_view s = call.self.string();
    const bool matches = call.name == "startswith" ? s.starts_with(affix.string())
                                                   : s.ends_with(affix.string());
    if (matches) return Value::Bool(true);
  }
  return Value::Bool(false);
}

StatusOr<Value> ChangeCase(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  const std::string& s = call.self.string();
  RENGA_RETURN_IF_ERROR(call.budget.Walk(static_cast<int64_t>(s.size())));
  std::string changed = call.name == "upper"   ? Upper(s)
                        : call.name == "lower" ? Lower(s)
                        : call.name == "title" ? Title(s)
                                               : Capitalize(s);
  return Value::String(Changed(call.self.text(), std::move(changed)));
}

StatusOr<Value> Replace(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"old", "new", "count"}));
  const Value* old_value = call.args.Find(0, "old");
  const Value* new_value = call.args.Find(1, "new");
  if (old_value == nullptr || new_value == nullptr || !old_value->Is(Kind::kString) ||
      !new_value->Is(Kind::kString)) {
    return TypeError("replace() needs two strings");
  }
  RENGA_ASSIGN_OR_RETURN(int64_t count, IntArg(call, 2, "count", -1));
  const std::string& old_text = old_value->string();
  if (old_text.empty()) return TypeError("replace() of an empty string is not supported");
  const MarkedText& text = call.self.text();
  MarkedText out;
  size_t begin = 0;
  for (; count != 0; --count) {
    RENGA_RETURN_IF_ERROR(
        call.budget.Step(1 + static_cast<int64_t>(old_text.size() / 16)));
    const size_t found = FindText(text.text, old_text, begin);
    if (found == std::string::npos) break;
    RENGA_RETURN_IF_ERROR(call.budget.Make(
        static_cast<int64_t>(found - begin + new_value->string().size())));
    AppendSlice(out, text, begin, found);
    Append(out, new_value->text());
    begin = found + old_text.size();
  }
  AppendSlice(out, text, begin, text.text.size());
  return Value::String(std::move(out));
}

StatusOr<Value> Find(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"sub"}));
  const Value* sub = call.args.Find(0, "sub");
  if (sub == nullptr || !sub->Is(Kind::kString)) {
    return TypeError(std::string(call.name) + "() needs a string");
  }
  const std::string& s = call.self.string();
  if (call.name == "rfind" && sub->string().size() > 64) {
    return TypeError("rfind() of more than 64 bytes");
  }
  const size_t found =
      call.name == "rfind" ? s.rfind(sub->string()) : FindText(s, sub->string(), 0);
  if (found != std::string::npos) {
    return Value::Int(CountCharacters(std::string_view(s).substr(0, found)));
  }
  if (call.name == "index") return TypeError("substring not found");
  return Value::Int(-1);
}

StatusOr<Value> CountText(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"sub"}));
  RENGA_ASSIGN_OR_RETURN(const std::string_view sub, StringArg(call, 0, "sub", ""));
  if (sub.empty()) return TypeError("count() needs a string");
  int64_t count = 0;
  for (size_t at = 0;; ++count) {
    RENGA_RETURN_IF_ERROR(call.budget.Step(1 + static_cast<int64_t>(sub.size() / 16)));
    at = FindText(call.self.string(), sub, at);
    if (at == std::string::npos) return Value::Int(count);
    at += sub.size();
  }
}

StatusOr<Value> JoinItems(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"iterable"}));
  const Value* list = call.args.Find(0, "iterable");
  if (list == nullptr) return TypeError("join() needs a list");
  RENGA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.budget, *list));
  MarkedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].Is(Kind::kString)) return TypeError("join() of something not a string");
    RENGA_RETURN_IF_ERROR(call.budget.Make(
        static_cast<int64_t>(items[i].string().size() + call.self.string().size())));
    if (i > 0) Append(out, call.self.text());
    Append(out, items[i].text());
  }
  return Value::String(std::move(out));
}

StatusOr<Value> RemoveAffix(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"affix"}));
  RENGA_ASSIGN_OR_RETURN(const std::string_view affix, StringArg(call, 0, "affix", ""));
  const std::string_view s = call.self.string();
  const bool prefix = call.name == "removeprefix";
  if (!(prefix ? s.starts_with(affix) : s.ends_with(affix))) return call.self;
  return Value::String(prefix ? Slice(call.self.text(), affix.size(), s.size())
                              : Slice(call.self.text(), 0, s.size() - affix.size()));
}

StatusOr<Value> AllCharacters(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  const std::string_view s = call.self.string();
  for (size_t at = 0; at < s.size();) {
    const Utf8Char c = DecodeUtf8(s.substr(at));
    const bool matches = call.name == "isspace"   ? IsPythonSpace(c.code)
                         : call.name == "isalpha" ? ClassOf(c.code) == CharClass::kLetter
                         : call.name == "isalnum"
                             ? ClassOf(c.code) == CharClass::kLetter ||
                                   ClassOf(c.code) == CharClass::kNumber
                             : ClassOf(c.code) == CharClass::kNumber;
    if (!matches) return Value::Bool(false);
    at += c.length;
  }
  return Value::Bool(!s.empty());
}

StatusOr<Value> IsCase(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  const std::string& s = call.self.string();
  const bool same = call.name == "isupper" ? Upper(s) == s : Lower(s) == s;
  return Value::Bool(same && Upper(s) != Lower(s));
}

StatusOr<Value> DictParts(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  std::vector<Value> items;
  for (const auto& [key, value] : call.self.dict().entries) {
    RENGA_RETURN_IF_ERROR(call.budget.Step());
    if (call.name == "items") {
      RENGA_ASSIGN_OR_RETURN(Value pair, Value::MakeList({key, value}, true));
      items.push_back(std::move(pair));
    } else {
      items.push_back(call.name == "keys" ? key : value);
    }
  }
  return Value::MakeList(std::move(items));
}

StatusOr<Value> DictGet(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"key", "default"}));
  const Value* key = call.args.Find(0, "key");
  if (key == nullptr) return TypeError("get() needs a key");
  RENGA_RETURN_IF_ERROR(
      call.budget.Step(static_cast<int64_t>(call.self.dict().entries.size() / 8)));
  if (const Value* found = FindEntry(call.self.dict(), *key)) return *found;
  const Value* fallback = call.args.Find(1, "default");
  return fallback == nullptr ? Value::None() : *fallback;
}

StatusOr<Value> CopySelf(const Call& call) { return call.self; }

StatusOr<Value> ListSearch(const Call& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"value"}));
  const Value* wanted = call.args.Find(0, "value");
  if (wanted == nullptr) return TypeError(std::string(call.name) + "() needs a value");
  RENGA_RETURN_IF_ERROR(call.budget.Walk(call.self.weight()));
  int64_t count = 0;
  for (size_t i = 0; i < call.self.list().items.size(); ++i) {
    if (!Equal(call.self.list().items[i], *wanted)) continue;
    if (call.name == "index") return Value::Int(static_cast<int64_t>(i));
    ++count;
  }
  if (call.name == "index") return TypeError("the value is not in the list");
  return Value::Int(count);
}

StatusOr<Value> LoopCycle(const Call& call) {
  if (call.args.positional.empty()) return TypeError("cycle() needs values");
  const auto index = static_cast<size_t>(call.self.loop().index0);
  return call.args.positional[index % call.args.positional.size()];
}

constexpr MethodEntry kStringMethods[] = {{"strip", Strip},
                                          {"lstrip", Strip},
                                          {"rstrip", Strip},
                                          {"split", Split},
                                          {"rsplit", RightSplit},
                                          {"splitlines", SplitLines},
                                          {"startswith", StartsOrEnds},
                                          {"endswith", StartsOrEnds},
                                          {"upper", ChangeCase},
                                          {"lower", ChangeCase},
                                          {"title", ChangeCase},
                                          {"capitalize", ChangeCase},
                                          {"replace", Replace},
                                          {"find", Find},
                                          {"rfind", Find},
                                          {"index", Find},
                                          {"count", CountText},
                                          {"join", JoinItems},
                                          {"removeprefix", RemoveAffix},
                                          {"removesuffix", RemoveAffix},
                                          {"isspace", AllCharacters},
                                          {"isalpha", AllCharacters},
                                          {"isdigit", AllCharacters},
                                          {"isnumeric", AllCharacters},
                                          {"isalnum", AllCharacters},
                                          {"isupper", IsCase},
                                          {"islower", IsCase}};
constexpr MethodEntry kListMethods[] = {
    {"index", ListSearch}, {"count", ListSearch}, {"copy", CopySelf}};
constexpr MethodEntry kDictMethods[] = {{"items", DictParts},
                                        {"keys", DictParts},
                                        {"values", DictParts},
                                        {"get", DictGet},
                                        {"copy", CopySelf}};
constexpr MethodEntry kLoopMethods[] = {{"cycle", LoopCycle}};

MethodFn FindMethod(const Value& object, std::string_view name) {
  std::span<const MethodEntry> methods;
  if (object.Is(Kind::kString)) methods = kStringMethods;
  if (object.Is(Kind::kList)) methods = kListMethods;
  if (object.Is(Kind::kDict)) methods = kDictMethods;
  if (object.Is(Kind::kLoop)) methods = kLoopMethods;
  for (const MethodEntry& method : methods) {
    if (method.name == name) return method.fn;
  }
  return nullptr;
}

}  // namespace

bool HasMethod(const Value& object, std::string_view name) {
  return FindMethod(object, name) != nullptr;
}

StatusOr<Value> CallMethod(Budget& budget, const BoundMethod& method,
                           const CallArgs& args) {
  const Value& self = *method.self;
  if (self.Is(Kind::kString)) {
    const auto size = static_cast<int64_t>(self.string().size());
    RENGA_RETURN_IF_ERROR(budget.Make(size));
    RENGA_RETURN_IF_ERROR(budget.Walk(size));
  }
  const MethodFn fn = FindMethod(self, method.name);
  if (fn == nullptr) return TypeError("no method '" + method.name + "'");
  return fn({budget, self, method.name, args});
}

Value LoopAttribute(const LoopState& loop, std::string_view name) {
  const std::vector<Value>& items = loop.items.list().items;
  const auto length = static_cast<int64_t>(items.size());
  const int64_t i = loop.index0;
  if (name == "index") return Value::Int(i + 1);
  if (name == "index0") return Value::Int(i);
  if (name == "revindex") return Value::Int(length - i);
  if (name == "revindex0") return Value::Int(length - i - 1);
  if (name == "first") return Value::Bool(i == 0);
  if (name == "last") return Value::Bool(i + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "depth") return Value::Int(1);  // Of recursion.
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem" && i > 0) return items[static_cast<size_t>(i - 1)];
  if (name == "nextitem" && i + 1 < length) return items[static_cast<size_t>(i + 1)];
  return Value::Undefined("the loop has no '" + std::string(name) + "' here");
}

}  // namespace renga::jinja
