#include "gateway/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace renga {
namespace {

using testing::HasSubstr;

Status Refusal(std::string_view text) { return ParseJson(text).status(); }

TEST(JsonReaderTest, OnlyAnObjectIsABody) {
  EXPECT_TRUE(ParseJson(R"( {"a": [1, {"b": null}]} )").ok());
  for (const char* text :
       {"", "[]", "1", "null", "\"x\"", "{", "{}}", "{} x", "{'a':1}", R"({"a":1,})",
        R"({"a":NaN})", R"({"a":Infinity})", R"({"a":01})", R"({"a":.5})", "{/**/}"}) {
    const Status status = Refusal(text);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(JsonReaderTest, WhatIsWrongIsNamedByItsPath) {
  EXPECT_EQ(Refusal("{\"a\":{\"b\":[1,\"x\xFFy\"]}}").field(), "a.b[1]");
  EXPECT_EQ(Refusal(R"({"messages":[{"content":"x \ud83d y"}]})").field(),
            "messages[0].content");
  EXPECT_EQ(Refusal(R"({"a":"\udc00"})").field(), "a");
  EXPECT_EQ(Refusal("{\"a\":1,\"b\":}").field(), "b");
}

TEST(JsonReaderTest, BytesThatAreNotUtf8AreRefusedInKeysToo) {
  EXPECT_FALSE(ParseJson("{\"a\xFF\":1}").ok());
  EXPECT_FALSE(ParseJson("{\"model\":\"\xC3\"}").ok());
  EXPECT_TRUE(ParseJson(R"({"a":"\ud83d\ude00 \u0000"})").ok());
}

TEST(JsonReaderTest, AKeyGivenTwiceIsRefused) {
  const Status status = Refusal(R"({"a":{"x":1},"b":{"x":1,"x":2}})");
  EXPECT_EQ(status.field(), "b.x");
  EXPECT_THAT(status.message(), HasSubstr("twice"));
  EXPECT_TRUE(ParseJson(R"([{"x":1},{"x":1}])").status().message().find("twice") ==
              std::string::npos);
  // The same key in another spelling.
  EXPECT_FALSE(ParseJson(R"({"a":1,"\u0061":2})").ok());
}

TEST(JsonReaderTest, DepthAndNumberOfKeysAreBounded) {
  for (const char* bracket : {"[", "{\"a\":"}) {
    std::string deep = "{\"x\":";
    for (int i = 0; i < 100'000; ++i) deep += bracket;
    EXPECT_FALSE(ParseJson(deep).ok());
  }
  std::string wide = "{";
  for (int i = 0; i < 5000; ++i) wide += '"' + std::to_string(i) + "\":1,";
  EXPECT_THAT(Refusal(wide + "\"z\":1}").message(), HasSubstr("more than 4096 fields"));
}

// An empty list takes two bytes here, and many times that as a value.
TEST(JsonReaderTest, TheNumberOfValuesIsBounded) {
  for (const char* value : {"[]", "{}", "1", "\"\"", "null", "[{\"a\":1}]"}) {
    std::string many = R"({"x":[)";
    for (int i = 0; i < 1 << 20; ++i) many += std::string(value) + ',';
    const Status status = Refusal(many + "0]}");
    EXPECT_THAT(status.message(), HasSubstr("more than 1048576 values")) << value;
    EXPECT_EQ(status.field(), "x") << value;
  }
}

// ---- Fields
// ----------------------------------------------------------------------------

class FieldReaderTest : public testing::Test {
 protected:
  FieldReader Fields(std::string_view text) {
    StatusOr<boost::json::object> parsed = ParseJson(text);
    EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
    object_ = *std::move(parsed);
    return FieldReader(object_, "p.");
  }
  boost::json::object object_;
};

TEST_F(FieldReaderTest, NullIsAbsent) {
  FieldReader fields = Fields(R"({"a":null,"b":null,"c":null,"d":null})");
  EXPECT_FALSE(fields.Bool("a"));
  EXPECT_FALSE(fields.String("b"));
  EXPECT_FALSE(fields.Float("c"));
  EXPECT_FALSE(fields.Integer("d"));
  EXPECT_FALSE(fields.Integer("absent"));
  EXPECT_TRUE(fields.Finish(false).ok());
}

TEST_F(FieldReaderTest, IntegersAreIntegersInAnySpelling) {
  FieldReader fields =
      Fields(R"({"a":8,"b":8.0,"c":1e3,"d":18446744073709551615,"e":-1e30,"f":1e30})");
  EXPECT_EQ(fields.Integer("a"), 8);
  EXPECT_EQ(fields.Integer("b"), 8);
  EXPECT_EQ(fields.Integer("c"), 1000);
  EXPECT_EQ(fields.Integer("d"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(fields.Integer("e"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(fields.Integer32("f"), std::numeric_limits<int32_t>::max());
  EXPECT_TRUE(fields.Finish(false).ok());
}

TEST_F(FieldReaderTest, OtherTypesAreRefusedByName) {
  for (const char* value : {"\"8\"", "8.5", "true", "[8]", "{}"}) {
    FieldReader fields = Fields(std::string("{\"a\":") + value + "}");
    EXPECT_FALSE(fields.Integer("a")) << value;
    EXPECT_EQ(fields.Finish(false).field(), "p.a") << value;
  }
  for (const char* value : {"\"1\"", "false", "[]", "1e39", "-1e308"}) {
    FieldReader fields = Fields(std::string("{\"a\":") + value + "}");
    EXPECT_FALSE(fields.Float("a")) << value;
    EXPECT_EQ(fields.Finish(false).field(), "p.a") << value;
  }
  for (const char* value : {"1", "\"true\"", "0", "[]"}) {
    FieldReader fields = Fields(std::string("{\"a\":") + value + "}");
    EXPECT_FALSE(fields.Bool("a")) << value;
    EXPECT_FALSE(fields.Finish(true).ok()) << value;
  }
}

TEST_F(FieldReaderTest, TheFirstFailureIsKept) {
  FieldReader fields = Fields(R"({"a":"x","b":"y"})");
  fields.Integer("a");
  fields.Integer("b");
  fields.Refuse("c", "is required");
  EXPECT_EQ(fields.Finish(false).field(), "p.a");
}

TEST_F(FieldReaderTest, UnknownFieldsAreRefusedUnlessLenient) {
  FieldReader fields = Fields(R"({"a":1,"typo":null})");
  fields.Integer("a");
  EXPECT_EQ(fields.Finish(false).field(), "p.typo");
  EXPECT_TRUE(fields.Finish(true).ok());
}

TEST_F(FieldReaderTest, UnsupportedFieldsMayAskForNothing) {
  FieldReader fields = Fields(R"({"a":null,"b":false,"c":[],"d":{},"e":"none"})");
  for (const char* name : {"a", "b", "c", "d"}) fields.Unsupported(name);
  fields.Unsupported("e", "none");
  EXPECT_TRUE(fields.Finish(false).ok());
  for (const char* value : {"true", "[1]", "{\"x\":1}", "\"auto\"", "0", "\"\""}) {
    FieldReader asking = Fields(std::string("{\"a\":") + value + "}");
    asking.Unsupported("a", "none");
    EXPECT_EQ(asking.Finish(true).field(), "p.a") << value;
  }
}

TEST(JsonReaderTest, TokenIdsFitTheirType) {
  EXPECT_TRUE(ReadTokenId(2147483647, "t").ok());
  EXPECT_FALSE(ReadTokenId(2147483648, "t").ok());
  EXPECT_FALSE(ReadTokenId(-1, "t").ok());
  EXPECT_FALSE(ReadTokenId(1.5, "t").ok());
  EXPECT_EQ(ReadTokenId("a", "prompt[1]").status().field(), "prompt[1]");
}

}  // namespace
}  // namespace renga
