#include "text/jinja/to_json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "text/jinja/marked.h"

namespace renga::jinja {
namespace {

std::string Json(const Value& value, const JsonStyle& style = {}) {
  Budget budget({});
  const StatusOr<std::string> json = ToJson(budget, value, style);
  return json.ok() ? *json : json.status().ToString();
}

Value Str(std::string text) { return Value::String(PlainText(std::move(text))); }

TEST(ToJsonTest, KeepsTheOrderOfKeysAndEscapesOnlyWhatJsonAsks) {
  const Value dict = *Value::MakeDict(
      {{Str("b"), Str("<\u00e9/'&\u2028>")},
       {Str("a"), *Value::MakeList({Value::Int(1), Value::Float(2.0), Value::None()})}});
  EXPECT_EQ(Json(dict), "{\"b\": \"<\u00e9/'&\u2028>\", \"a\": [1, 2.0, null]}");
  EXPECT_EQ(Json(Str(std::string("\"\\\n\0\x1f", 5))), "\"\\\"\\\\\\n\\u0000\\u001f\"");
  EXPECT_EQ(Json(Value::Float(NAN)), "NaN");
}

TEST(ToJsonTest, WhatIsNotJsonIsAnError) {
  EXPECT_EQ(Json(Value::Undefined("x")),
            "INVALID_ARGUMENT: Object of type Undefined is not JSON serializable");
}

TEST(ToJsonTest, LayoutIsBounded) {
  JsonStyle style;
  style.indent = 1'000'000;
  EXPECT_EQ(Json(Value::Int(1), style).substr(0, 16), "INVALID_ARGUMENT");
  style.indent = 1;
  style.item_separator = std::string(100, ',');
  EXPECT_EQ(Json(Value::Int(1), style).substr(0, 16), "INVALID_ARGUMENT");
}

TEST(ToJsonTest, TheBudgetIsCharged) {
  Budget budget({.max_bytes = 100});
  EXPECT_EQ(ToJson(budget, Str(std::string(200, 'x')), {}).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace renga::jinja
