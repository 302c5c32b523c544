#include "gateway/http_message.h"

#include <gtest/gtest.h>

namespace renga {
namespace {

TEST(HttpMessageTest, TargetsAreSplitAndDecodedOnce) {
  const auto target = ParseTarget("/v1/models/a%20b%252F?q=%20x?y");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/v1/models/a b%2F");
  EXPECT_EQ(target->query, "q=%20x?y");
  EXPECT_EQ(ParseTarget("http://host:1/x")->path, "/x");
  EXPECT_EQ(ParseTarget("HTTPS://host")->path, "/");
  EXPECT_EQ(ParseTarget("*")->path, "*");
  EXPECT_EQ(ParseTarget("/%E2%82%AC")->path, "/€");
}

TEST(HttpMessageTest, MalformedTargetsAreNone) {
  for (const char* target : {"", "x", "*x", "/%", "/%4", "/%zz", "/%00", "/a%0Ab", "/%7F",
                             "/%ff", "ftp://x/", "?q"}) {
    EXPECT_FALSE(ParseTarget(target)) << target;
  }
}

TEST(HttpMessageTest, HeadersAreFoundWhateverTheirCase) {
  HttpRequest request;
  request.headers = {{"Host", "x"}, {"X-A", "1"}, {"x-a", "2"}};
  ASSERT_NE(request.Header("x-A"), nullptr);
  EXPECT_EQ(*request.Header("x-A"), "1");
  EXPECT_EQ(request.HeaderCount("X-a"), 2u);
  EXPECT_EQ(request.Header("absent"), nullptr);
}

TEST(HttpMessageTest, SettingAHeaderTwiceReplacesIt) {
  HttpResponse response;
  response.Set("Allow", "GET");
  response.Set("allow", "POST");
  ASSERT_EQ(response.headers.size(), 1u);
  EXPECT_EQ(response.headers[0].value, "POST");
}

TEST(HttpMessageTest, TheHeadTellsHowTheBodyEnds) {
  HttpResponse response{.status = 404, .body = "abc"};
  response.Set("X", "y");
  EXPECT_EQ(HeadText(response, HttpFraming::kLength, true, "D"),
            "HTTP/1.1 404 Not Found\r\nDate: D\r\nX: y\r\nContent-Length: 3\r\n"
            "Connection: close\r\n\r\n");
  EXPECT_EQ(HeadText({}, HttpFraming::kChunked, false, "D"),
            "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n"
            "Connection: keep-alive\r\n\r\n");
  // 204 has no length: some clients would wait for a body.
  EXPECT_EQ(HeadText({.status = 204}, HttpFraming::kLength, false, "D"),
            "HTTP/1.1 204 No Content\r\nDate: D\r\nConnection: keep-alive\r\n\r\n");
}

TEST(HttpMessageTest, ChunksCarryTheirLengthAndNothingIsNoChunk) {
  EXPECT_EQ(ChunkText("0123456789abcdefg"), "11\r\n0123456789abcdefg\r\n");
  // An empty chunk would be the end.
  EXPECT_EQ(ChunkText(""), "");
}

TEST(HttpMessageTest, DatesAreHttps) {
  EXPECT_EQ(HttpDate(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(HttpDate(0), "Thu, 01 Jan 1970 00:00:00 GMT");
}

}  // namespace
}  // namespace renga
