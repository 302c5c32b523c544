#include "gateway/json_writer.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <cstring>
#include <limits>
#include <random>

namespace renga {
namespace {

namespace json = boost::json;

std::string Quoted(std::string_view text) {
  JsonWriter writer;
  writer.String(text);
  return std::move(writer).Take();
}

TEST(JsonWriterTest, CommasStandBetweenValuesAndNowhereElse) {
  JsonWriter writer;
  writer.BeginObject().Field("a", 1).NullField("b").Key("c").BeginArray();
  writer.Int(1).String("x").BeginObject().EndObject().BeginArray().EndArray().Bool(true);
  writer.EndArray().Field("d", "e").Field("f", false).Field("g", 0.5).EndObject();
  EXPECT_EQ(std::move(writer).Take(),
            R"({"a":1,"b":null,"c":[1,"x",{},[],true],"d":"e","f":false,"g":0.5})");
}

TEST(JsonWriterTest, WhatJsonCannotHoldIsEscaped) {
  EXPECT_EQ(Quoted("a\"b\\c\n\r\t\x01\x7F"), R"("a\"b\\c\n\r\t\u0001\u007f")");
  EXPECT_EQ(Quoted(std::string_view("\0", 1)), R"("\u0000")");
  EXPECT_EQ(Quoted("€😀"), "\"€😀\"");
}

TEST(JsonWriterTest, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  const std::string u = "\xEF\xBF\xBD";
  EXPECT_EQ(Quoted("a\xFFz"), '"' + ("a" + u + "z") + '"');
  EXPECT_EQ(Quoted("\xE2\x82"), '"' + u + '"');                      // Cut short.
  EXPECT_EQ(Quoted("\xC0\xAF"), '"' + u + u + '"');                  // Overlong.
  EXPECT_EQ(Quoted("\xED\xA0\x80"), '"' + u + u + u + '"');          // A surrogate.
  EXPECT_EQ(Quoted("\xF4\x90\x80\x80"), '"' + u + u + u + u + '"');  // Above U+10FFFF.
  EXPECT_EQ(Quoted("\xF0\x9F\x98x"), '"' + (u + "x") + '"');
}

TEST(JsonWriterTest, IsUtf8AgreesWithTheEscaping) {
  EXPECT_TRUE(IsUtf8("a€😀"));
  EXPECT_TRUE(IsUtf8(""));
  for (const char* bad : {"\xFF", "\xE2\x82", "\xC1\xBF", "\xED\xBF\xBF", "\x80"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

TEST(JsonWriterTest, RandomBytesAlwaysParseAsJson) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 20, ' ');
    for (char& c : bytes) c = static_cast<char>(random() % 256);
    json::error_code error;
    const json::value value = json::parse(Quoted(bytes), error);
    ASSERT_FALSE(error) << round;
    if (IsUtf8(bytes)) {
      EXPECT_EQ(std::string_view(value.as_string()), std::string_view(bytes));
    }
  }
}

TEST(JsonWriterTest, NumbersReadBackTheSameAndInfinitiesAreNull) {
  JsonWriter writer;
  writer.BeginArray().Float(-0.1f).Double(1e-7).Double(1.0);
  writer.Int(std::numeric_limits<int64_t>::min());
  writer.Double(std::numeric_limits<double>::infinity());
  writer.Float(std::numeric_limits<float>::quiet_NaN()).EndArray();
  EXPECT_EQ(std::move(writer).Take(), "[-0.1,1e-07,1,-9223372036854775808,null,null]");
}

}  // namespace
}  // namespace renga
