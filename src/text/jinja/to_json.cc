#include "text/jinja/to_json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/status_macros.h"
#include "text/jinja/operators.h"
#include "text/utf8.h"

namespace renga::jinja {
namespace {

using Kind = Value::Kind;

class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}

  Status Write(const Value& value, int64_t level);
  std::string Take() { return std::move(out_); }

 private:
  void WriteString(std::string_view text);
  void WriteEscape(unsigned unit);
  Status WriteList(const Value& value, int64_t level);
  Status WriteDict(const Value& value, int64_t level);
  Status WriteKey(const Value& key);
  Status NewLine(int64_t level);

  Budget& budget_;
  const JsonStyle& style_;
  std::string out_;
};

void JsonWriter::WriteEscape(unsigned unit) {
  char buffer[8];
  std::snprintf(buffer, sizeof buffer, "\\u%04x", unit & 0xFFFF);
  out_ += buffer;
}

void JsonWriter::WriteString(std::string_view text) {
  out_ += '"';
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    if (c.code == '"' || c.code == '\\') {
      out_ += '\\';
      out_ += static_cast<char>(c.code);
    } else if (c.code == '\n') {
      out_ += "\\n";
    } else if (c.code == '\r') {
      out_ += "\\r";
    } else if (c.code == '\t') {
      out_ += "\\t";
    } else if (c.code == '\b') {
      out_ += "\\b";
    } else if (c.code == '\f') {
      out_ += "\\f";
    } else if (c.code < 0x20) {
      WriteEscape(c.code);
    } else if (style_.ensure_ascii && c.code >= 0x10000) {
      WriteEscape(0xD800 + ((c.code - 0x10000) >> 10));
      WriteEscape(0xDC00 + ((c.code - 0x10000) & 0x3FF));
    } else if (style_.ensure_ascii && c.code >= 0x7F) {
      WriteEscape(c.code);
    } else {
      out_.append(text.substr(at, c.length));
    }
    at += c.length;
  }
  out_ += '"';
}

Status JsonWriter::NewLine(int64_t level) {
  if (!style_.indent) return OkStatus();
  const int64_t spaces = std::max<int64_t>(*style_.indent, 0) * level;
  RENGA_RETURN_IF_ERROR(budget_.Make(spaces + 1));
  out_ += '\n';
  out_.append(static_cast<size_t>(spaces), ' ');
  return OkStatus();
}

Status JsonWriter::WriteKey(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      WriteString(key.string());
      return OkStatus();
    case Kind::kNone:
      out_ += "\"null\"";
      return OkStatus();
    case Kind::kBool:
      out_ += key.boolean() ? "\"true\"" : "\"false\"";
      return OkStatus();
    case Kind::kInt:
      out_ += '"' + std::to_string(key.integer()) + '"';
      return OkStatus();
    case Kind::kFloat:
      out_ += '"' + FloatText(key.number()) + '"';
      return OkStatus();
    default:
      return TypeError("a key of type '" + std::string(key.TypeName()) + "' is not JSON");
  }
}

Status JsonWriter::WriteList(const Value& value, int64_t level) {
  const std::vector<Value>& items = value.list().items;
  if (items.empty()) {
    out_ += "[]";
    return OkStatus();
  }
  out_ += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += style_.item_separator;
    RENGA_RETURN_IF_ERROR(NewLine(level + 1));
    RENGA_RETURN_IF_ERROR(Write(items[i], level + 1));
  }
  RENGA_RETURN_IF_ERROR(NewLine(level));
  out_ += ']';
  return OkStatus();
}

Status JsonWriter::WriteDict(const Value& value, int64_t level) {
  std::vector<const std::pair<Value, Value>*> entries;
  for (const auto& entry : value.dict().entries) entries.push_back(&entry);
  if (entries.empty()) {
    out_ += "{}";
    return OkStatus();
  }
  if (style_.sort_keys) {
    for (const auto* entry : entries) {
      if (!entry->first.Is(Kind::kString))
        return TypeError("only string keys can be sorted");
    }
    std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
      return a->first.string() < b->first.string();
    });
  }
  out_ += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out_ += style_.item_separator;
    RENGA_RETURN_IF_ERROR(NewLine(level + 1));
    RENGA_RETURN_IF_ERROR(WriteKey(entries[i]->first));
    out_ += style_.key_separator;
    RENGA_RETURN_IF_ERROR(Write(entries[i]->second, level + 1));
  }
  RENGA_RETURN_IF_ERROR(NewLine(level));
  out_ += '}';
  return OkStatus();
}

Status JsonWriter::Write(const Value& value, int64_t level) {
  switch (value.kind()) {
    case Kind::kNone:
      out_ += "null";
      return OkStatus();
    case Kind::kBool:
      out_ += value.boolean() ? "true" : "false";
      return OkStatus();
    case Kind::kInt:
      out_ += std::to_string(value.integer());
      return OkStatus();
    case Kind::kFloat:
      if (std::isnan(value.number())) {
        out_ += "NaN";
      } else if (std::isinf(value.number())) {
        out_ += value.number() > 0 ? "Infinity" : "-Infinity";
      } else {
        out_ += FloatText(value.number());
      }
      return OkStatus();
    case Kind::kString:
      WriteString(value.string());
      return OkStatus();
    case Kind::kList:
      return WriteList(value, level);
    case Kind::kDict:
      return WriteDict(value, level);
    default:
      return TypeError("Object of type " + std::string(value.TypeName()) +
                       " is not JSON serializable");
  }
}

}  // namespace

StatusOr<std::string> ToJson(Budget& budget, const Value& value, const JsonStyle& style) {
  if (style.indent && *style.indent > 16) return TypeError("an indent above 16");
  if (style.item_separator.size() + style.key_separator.size() > 16) {
    return TypeError("separators longer than 16 bytes");
  }
  // The weight counts every node and byte once; an escape or separator is longer.
  const int64_t weight = value.weight();
  RENGA_RETURN_IF_ERROR(budget.Walk(weight));
  RENGA_RETURN_IF_ERROR(budget.Make(weight));
  JsonWriter writer(budget, style);
  RENGA_RETURN_IF_ERROR(writer.Write(value, 0));
  std::string text = writer.Take();
  RENGA_RETURN_IF_ERROR(
      budget.Make(std::max<int64_t>(0, static_cast<int64_t>(text.size()) - weight)));
  return text;
}

}  // namespace renga::jinja
