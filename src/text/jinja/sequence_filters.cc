// The filters that work on sequences.

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/status_macros.h"
#include "text/jinja/filters.h"
#include "text/jinja/marked.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/jinja/tests.h"

namespace renga::jinja {
namespace {

using Kind = Value::Kind;

// A value along "a.b.0"; undefined where a part is missing.
StatusOr<Value> AlongPath(Budget& budget, const Value& value, std::string_view path) {
  Value at = value;
  while (true) {
    const size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = !part.empty() && parsed.ptr == part.data() + part.size() &&
                          parsed.ec == std::errc();
    RENGA_ASSIGN_OR_RETURN(
        at, GetItem(budget, at,
                    is_index ? Value::Int(index)
                             : Value::String(PlainText(std::string(part)))));
    if (dot == std::string_view::npos) return at;
    path.remove_prefix(dot + 1);
  }
}

// The argument `attribute`, or nullopt.
StatusOr<std::optional<std::string>> AttributeArg(const FilterCall& call, size_t index) {
  const Value* value = call.args.Find(index, "attribute");
  if (value == nullptr || value->Is(Kind::kNone)) return std::optional<std::string>();
  if (value->Is(Kind::kInt)) {
    return std::optional<std::string>(std::to_string(value->integer()));
  }
  if (!value->Is(Kind::kString)) return TypeError("attribute must be a name");
  return std::optional<std::string>(value->string());
}

StatusOr<std::vector<Value>> Items(const FilterCall& call) {
  return Iterate(call.budget, call.input);
}

StatusOr<Value> ToList(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  RENGA_ASSIGN_OR_RETURN(std::vector<Value> items, Items(call));
  return Value::MakeList(std::move(items));
}

StatusOr<Value> First(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  RENGA_ASSIGN_OR_RETURN(std::vector<Value> items, Items(call));
  if (items.empty()) return Value::Undefined("the sequence is empty");
  return call.name == "first" ? std::move(items.front()) : std::move(items.back());
}

StatusOr<Value> Reverse(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  RENGA_ASSIGN_OR_RETURN(std::vector<Value> items, Items(call));
  std::reverse(items.begin(), items.end());
  if (!call.input.Is(Kind::kString)) return Value::MakeList(std::move(items));
  MarkedText out;
  for (const Value& item : items) Append(out, item.text());
  return Value::String(std::move(out));
}

StatusOr<Value> Join(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"d", "attribute"}));
  RENGA_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(call));
  RENGA_ASSIGN_OR_RETURN(const std::optional<std::string> path, AttributeArg(call, 1));
  MarkedText separator;
  if (const Value* d = call.args.Find(0, "d")) {
    RENGA_ASSIGN_OR_RETURN(separator, ToText(call.budget, *d));
  }
  MarkedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (path) {
      RENGA_ASSIGN_OR_RETURN(item, AlongPath(call.budget, item, *path));
    }
    RENGA_ASSIGN_OR_RETURN(const MarkedText text, ToText(call.budget, item));
    RENGA_RETURN_IF_ERROR(
        call.budget.Make(static_cast<int64_t>(text.text.size() + separator.text.size())));
    if (i > 0) Append(out, separator);
    Append(out, text);
  }
  return Value::String(std::move(out));
}

// The arguments behind the first `drop` positional ones.
CallArgs Rest(const CallArgs& args, size_t drop) {
  CallArgs rest = args;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                      drop, rest.positional.size())));
  return rest;
}

StatusOr<std::string> NameArg(const FilterCall& call, size_t index,
                              std::string_view what) {
  if (index >= call.args.positional.size() ||
      !call.args.positional[index].Is(Kind::kString)) {
    return TypeError(std::string(call.name) + " needs the name of " + std::string(what));
  }
  return call.args.positional[index].string();
}

StatusOr<Value> Map(const FilterCall& call) {
  RENGA_ASSIGN_OR_RETURN(std::vector<Value> items, Items(call));
  if (call.args.positional.empty()) {
    RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"attribute", "default"}));
    RENGA_ASSIGN_OR_RETURN(const std::optional<std::string> path, AttributeArg(call, 0));
    if (!path) return TypeError("map needs a filter or an attribute");
    const Value* fallback = call.args.Find(1, "default");
    for (Value& item : items) {
      RENGA_ASSIGN_OR_RETURN(item, AlongPath(call.budget, item, *path));
      if (fallback != nullptr && item.Is(Kind::kUndefined)) item = *fallback;
    }
    return Value::MakeList(std::move(items));
  }
  RENGA_ASSIGN_OR_RETURN(const std::string name, NameArg(call, 0, "a filter"));
  if (name == "map") return TypeError("map of map is not supported");
  const CallArgs rest = Rest(call.args, 1);
  for (Value& item : items) {
    RENGA_ASSIGN_OR_RETURN(item, ApplyFilter({call.budget, name, item, rest}));
  }
  return Value::MakeList(std::move(items));
}

// select, reject, selectattr, rejectattr.
StatusOr<Value> Select(const FilterCall& call) {
  const bool by_attribute = call.name.ends_with("attr");
  const bool wanted = call.name.starts_with("select");
  std::string path;
  if (by_attribute) {
    RENGA_ASSIGN_OR_RETURN(path, NameArg(call, 0, "an attribute"));
  }
  const size_t test_at = by_attribute ? 1 : 0;
  std::string test;
  if (call.args.positional.size() > test_at) {
    RENGA_ASSIGN_OR_RETURN(test, NameArg(call, test_at, "a test"));
    if (!HasTest(test)) return TypeError("no test named '" + test + "'");
  }
  const CallArgs rest = Rest(call.args, test_at + 1);
  RENGA_ASSIGN_OR_RETURN(std::vector<Value> items, Items(call));
  std::vector<Value> kept;
  for (Value& item : items) {
    Value subject = item;
    if (by_attribute) {
      RENGA_ASSIGN_OR_RETURN(subject, AlongPath(call.budget, item, path));
    }
    bool holds = subject.Truthy();
    if (!test.empty()) {
      RENGA_ASSIGN_OR_RETURN(holds, ApplyTest(call.budget, test, subject, rest));
    }
    if (holds == wanted) kept.push_back(std::move(item));
  }
  return Value::MakeList(std::move(kept));
}

// An item with the key that orders it; strings ignore case unless told otherwise.
struct Keyed {
  Value key;
  Value item;
};

StatusOr<std::vector<Keyed>> WithKeys(const FilterCall& call, std::vector<Value> items,
                                      const std::optional<std::string>& path,
                                      bool case_sensitive) {
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    Value key = item;
    if (path) {
      RENGA_ASSIGN_OR_RETURN(key, AlongPath(call.budget, item, *path));
    }
    if (key.Is(Kind::kString) && !case_sensitive) {
      RENGA_RETURN_IF_ERROR(call.budget.Make(key.weight()));
      key = Value::String(PlainText(Lower(key.string())));
    }
    keyed.push_back({std::move(key), std::move(item)});
  }
  return keyed;
}

// Stable; the first comparison that Python refuses is the error.
Status SortKeyed(Budget& budget, std::vector<Keyed>& keyed, bool reverse) {
  for (const Keyed& entry : keyed) {
    const Value& first = keyed.front().key;
    const bool comparable = entry.key.IsNumber()
                                ? first.IsNumber()
                                : entry.key.Is(Kind::kString) && first.Is(Kind::kString);
    if (entry.key.Is(Kind::kUndefined)) return UndefinedError(entry.key);
    if (!comparable) return TypeError("only numbers or only strings can be sorted");
    if (entry.key.Is(Kind::kFloat) && entry.key.number() != entry.key.number()) {
      return TypeError("NaN has no order");
    }
    // A sort compares each key about log n times.
    RENGA_RETURN_IF_ERROR(budget.Step(20 + entry.key.weight()));
  }
  const auto less = [](const Value& a, const Value& b) {
    if (a.Is(Kind::kString)) return a.string() < b.string();
    if (a.Is(Kind::kFloat) || b.Is(Kind::kFloat)) return a.number() < b.number();
    return a.integer() < b.integer();
  };
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.key, a.key) : less(a.key, b.key);
  });
  return OkStatus();
}

bool Flag(const FilterCall& call, size_t index, std::string_view name) {
  const Value* value = call.args.Find(index, name);
  return value != nullptr && value->Truthy();
}

StatusOr<Value> Sort(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(
      call.args.Check(call.name, {"reverse", "case_sensitive", "attribute"}));
  RENGA_ASSIGN_OR_RETURN(std::vector<Value> items, Items(call));
  RENGA_ASSIGN_OR_RETURN(const std::optional<std::string> path, AttributeArg(call, 2));
  RENGA_ASSIGN_OR_RETURN(
      std::vector<Keyed> keyed,
      WithKeys(call, std::move(items), path, Flag(call, 1, "case_sensitive")));
  RENGA_RETURN_IF_ERROR(SortKeyed(call.budget, keyed, Flag(call, 0, "reverse")));
  std::vector<Value> sorted;
  sorted.reserve(keyed.size());
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return Value::MakeList(std::move(sorted));
}

StatusOr<Value> Extreme(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"case_sensitive", "attribute"}));
  RENGA_ASSIGN_OR_RETURN(std::vector<Value> items, Items(call));
  if (items.empty()) return Value::Undefined("the sequence is empty");
  RENGA_ASSIGN_OR_RETURN(const std::optional<std::string> path, AttributeArg(call, 1));
  RENGA_ASSIGN_OR_RETURN(
      std::vector<Keyed> keyed,
      WithKeys(call, std::move(items), path, Flag(call, 0, "case_sensitive")));
  RENGA_RETURN_IF_ERROR(SortKeyed(call.budget, keyed, call.name == "max"));
  return std::move(keyed.front().item);
}

StatusOr<Value> Unique(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"case_sensitive", "attribute"}));
  RENGA_ASSIGN_OR_RETURN(std::vector<Value> items, Items(call));
  RENGA_ASSIGN_OR_RETURN(const std::optional<std::string> path, AttributeArg(call, 1));
  RENGA_ASSIGN_OR_RETURN(
      std::vector<Keyed> keyed,
      WithKeys(call, std::move(items), path, Flag(call, 0, "case_sensitive")));
  std::vector<Value> keys;
  std::vector<Value> kept;
  for (Keyed& entry : keyed) {
    const int64_t weight = std::min(entry.key.weight(), int64_t{1} << 30);
    RENGA_RETURN_IF_ERROR(
        call.budget.Step((1 + weight / 16) * (1 + static_cast<int64_t>(keys.size()))));
    const bool seen = std::any_of(keys.begin(), keys.end(), [&](const Value& key) {
      return Equal(key, entry.key);
    });
    if (seen) continue;
    keys.push_back(std::move(entry.key));
    kept.push_back(std::move(entry.item));
  }
  return Value::MakeList(std::move(kept));
}

StatusOr<Value> Sum(const FilterCall& call) {
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"attribute", "start"}));
  RENGA_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(call));
  RENGA_ASSIGN_OR_RETURN(const std::optional<std::string> path, AttributeArg(call, 0));
  const Value* start = call.args.Find(1, "start");
  Value total = start == nullptr ? Value::Int(0) : *start;
  for (const Value& item : items) {
    Value term = item;
    if (path) {
      RENGA_ASSIGN_OR_RETURN(term, AlongPath(call.budget, item, *path));
    }
    RENGA_ASSIGN_OR_RETURN(total, Arithmetic(call.budget, "+", total, term));
  }
  return total;
}

StatusOr<Value> Pairs(const Dict& dict, const std::vector<size_t>& order) {
  std::vector<Value> pairs;
  for (const size_t i : order) {
    RENGA_ASSIGN_OR_RETURN(
        Value pair,
        Value::MakeList({dict.entries[i].first, dict.entries[i].second}, true));
    pairs.push_back(std::move(pair));
  }
  return Value::MakeList(std::move(pairs));
}

StatusOr<Value> DictItems(const FilterCall& call) {
  if (call.name == "items") RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {}));
  if (call.input.Is(Kind::kUndefined)) return Value::MakeList({});
  if (!call.input.Is(Kind::kDict))
    return TypeError("can only get item pairs from a mapping");
  const Dict& dict = call.input.dict();
  RENGA_RETURN_IF_ERROR(call.budget.Step(static_cast<int64_t>(dict.entries.size())));
  std::vector<size_t> order(dict.entries.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (call.name == "items") return Pairs(dict, order);
  RENGA_RETURN_IF_ERROR(call.args.Check(call.name, {"case_sensitive", "by", "reverse"}));
  const Value* by = call.args.Find(1, "by");
  const bool by_value = by != nullptr && by->Is(Kind::kString) && by->string() == "value";
  std::vector<Value> keys;
  for (const auto& [key, value] : dict.entries) keys.push_back(by_value ? value : key);
  RENGA_ASSIGN_OR_RETURN(
      std::vector<Keyed> keyed,
      WithKeys(call, std::move(keys), std::nullopt, Flag(call, 0, "case_sensitive")));
  for (size_t i = 0; i < keyed.size(); ++i) {
    keyed[i].item = Value::Int(static_cast<int64_t>(i));
  }
  RENGA_RETURN_IF_ERROR(SortKeyed(call.budget, keyed, Flag(call, 2, "reverse")));
  for (size_t i = 0; i < keyed.size(); ++i) {
    order[i] = static_cast<size_t>(keyed[i].item.integer());
  }
  return Pairs(dict, order);
}

struct FilterEntry {
  std::string_view name;
  FilterFn fn;
};

constexpr FilterEntry kSequenceFilters[] = {
    {"list", ToList},       {"first", First},       {"last", First},
    {"reverse", Reverse},   {"join", Join},         {"map", Map},
    {"select", Select},     {"reject", Select},     {"selectattr", Select},
    {"rejectattr", Select}, {"sort", Sort},         {"min", Extreme},
    {"max", Extreme},       {"unique", Unique},     {"sum", Sum},
    {"items", DictItems},   {"dictsort", DictItems}};

}  // namespace

FilterFn FindSequenceFilter(std::string_view name) {
  for (const FilterEntry& entry : kSequenceFilters) {
    if (entry.name == name) return entry.fn;
  }
  return nullptr;
}

}  // namespace renga::jinja
