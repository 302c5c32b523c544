#include "text/jinja/value.h"

#include <gtest/gtest.h>

#include <cmath>

#include "text/jinja/marked.h"

namespace renga::jinja {
namespace {

Value Str(std::string text) { return Value::String(PlainText(std::move(text))); }

TEST(ValueTest, FloatsPrintAsPythonsRepr) {
  EXPECT_EQ(FloatText(0.0), "0.0");
  EXPECT_EQ(FloatText(-0.0), "-0.0");
  EXPECT_EQ(FloatText(1e16), "1e+16");
  EXPECT_EQ(FloatText(123456789012345680.0), "1.2345678901234568e+17");
  EXPECT_EQ(FloatText(9999999999999998.0), "9999999999999998.0");
  EXPECT_EQ(FloatText(0.0001), "0.0001");
  EXPECT_EQ(FloatText(0.00001), "1e-05");
  EXPECT_EQ(FloatText(INFINITY), "inf");
  EXPECT_EQ(FloatText(NAN), "nan");
}

TEST(ValueTest, NumbersOfAllKindsCompare) {
  EXPECT_TRUE(Equal(Value::Int(1), Value::Float(1.0)));
  EXPECT_TRUE(Equal(Value::Bool(true), Value::Int(1)));
  EXPECT_FALSE(Equal(Value::Int(1), Str("1")));
  EXPECT_FALSE(Equal(Value::None(), Value::Bool(false)));
}

TEST(ValueTest, DictsCompareWithoutOrder) {
  const Value a =
      *Value::MakeDict({{Str("x"), Value::Int(1)}, {Str("y"), Value::Int(2)}});
  const Value b =
      *Value::MakeDict({{Str("y"), Value::Int(2)}, {Str("x"), Value::Int(1)}});
  const Value c =
      *Value::MakeDict({{Str("y"), Value::Int(2)}, {Str("z"), Value::Int(1)}});
  EXPECT_TRUE(Equal(a, b));
  EXPECT_FALSE(Equal(a, c));
  EXPECT_EQ(FindEntry(a.dict(), "y")->integer(), 2);
  EXPECT_EQ(FindEntry(a.dict(), "q"), nullptr);
}

TEST(ValueTest, DepthIsBoundedAndWeightSaturates) {
  Value value = Value::Int(1);
  for (int i = 0; i < kMaxValueDepth; ++i)
    value = *Value::MakeList({value, value, value});
  EXPECT_EQ(value.depth(), kMaxValueDepth);
  EXPECT_GT(value.weight(), int64_t{1} << 58);
  EXPECT_EQ(Value::MakeList({value}).status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(Value::MakeDict({{Str("k"), value}}).ok());
}

TEST(ValueTest, TextOfALiteralKeepsItsMarksAndReprAddsPlainOnes) {
  MarkedText out;
  AppendRepr(Value::String(TrustedText("a\nb")), out);
  EXPECT_EQ(out.text, "'a\\nb'");
  ASSERT_EQ(out.trusted.size(), 2u);  // The letters, not the quotes and the escape.
  EXPECT_EQ(out.trusted[0].begin, 1u);
}

}  // namespace
}  // namespace renga::jinja
