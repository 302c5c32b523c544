#include "gateway/gateway_context.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <set>

namespace renga {
namespace {

class GatewayContextTest : public testing::Test {
 protected:
  Status Read(std::vector<HttpHeader> headers, const std::string& origins = "") {
    GatewaySettings settings;
    settings.cors_origins = origins;
    const GatewayContext gateway{
        .settings = settings, .client = client_, .post_work = {}};
    HttpRequest request;
    request.headers = std::move(headers);
    scope_ = {};
    return ReadScope(gateway, request, scope_);
  }

  InferenceClient client_{{MakeTargetChannel("127.0.0.1:1")}};
  RequestScope scope_;
};

TEST_F(GatewayContextTest, TheClientsIdIsKeptElseANewOneIsMade) {
  EXPECT_TRUE(Read({{"X-Request-ID", "abc"}}).ok());
  EXPECT_EQ(scope_.id, "abc");
  EXPECT_TRUE(Read({}).ok());
  const std::string made = scope_.id;
  EXPECT_TRUE(Read({{"x-request-id", ""}}).ok());
  EXPECT_NE(scope_.id, made);
  EXPECT_EQ(scope_.id.size(), made.size());
}

// gRPC ends the process on a byte that metadata cannot hold.
TEST_F(GatewayContextTest, WhatCannotTravelIsRefusedByTheHeadersName) {
  for (const char* name :
       {"x-request-id", "x-tenant-id", "x-session-id", "authorization"}) {
    for (const std::string& value : {std::string("a\x01"), std::string("é"),
                                     std::string("a\tb"), std::string(5000, 'a')}) {
      EXPECT_EQ(Read({{name, value}}).field(), name);
    }
    EXPECT_EQ(Read({{name, "a"}, {name, "b"}}).field(), name);
  }
  EXPECT_TRUE(Read({{"x-request-id", std::string(128, 'a')}}).ok());
  EXPECT_EQ(Read({{"x-request-id", std::string(129, 'a')}}).field(), "x-request-id");
}

// gRPC refuses a call with more than 8 KiB of metadata, its own part included.
TEST_F(GatewayContextTest, AllThatTravelsTogetherIsLessThanGrpcTakes) {
  size_t most = 0;
  for (const char* name :
       {"x-request-id", "x-tenant-id", "x-session-id", "authorization"}) {
    size_t size = 1;
    while (Read({{name, std::string(size, 'a')}}).ok()) ++size;
    most += size - 1;
  }
  EXPECT_LE(most, 7u << 10);
}

TEST_F(GatewayContextTest, OnlyListedOriginsAreLetIn) {
  const std::string origins = "https://a.example, https://b.example";
  const auto allowed = [&](const std::string& origin, const std::string& list) {
    EXPECT_TRUE(Read({{"Origin", origin}}, list).ok());
    return scope_.cors_origin == origin;
  };
  EXPECT_TRUE(allowed("https://a.example", origins));
  EXPECT_TRUE(allowed("https://b.example", origins));
  EXPECT_FALSE(allowed("https://c.example", origins));
  EXPECT_FALSE(allowed("https://a.example.evil", origins));
  EXPECT_FALSE(allowed("https://a.example", ""));
  EXPECT_TRUE(allowed("https://c.example", "*"));
}

TEST_F(GatewayContextTest, OnlyJsonBodiesAreTaken) {
  const auto check = [](const char* type) {
    HttpRequest request;
    request.headers = {{"Content-Type", type}};
    return CheckJsonType(request).ok();
  };
  EXPECT_TRUE(CheckJsonType({}).ok());
  EXPECT_TRUE(check("application/json"));
  EXPECT_TRUE(check("Application/JSON ; charset=utf-8"));
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded",
                           "multipart/form-data", "application/jsonx", ""}) {
    EXPECT_FALSE(check(type)) << type;
  }
}

TEST_F(GatewayContextTest, RandomNamesDiffer) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(RandomName(24));
  EXPECT_EQ(names.size(), 1000u);
  EXPECT_EQ(names.begin()->size(), 24u);
}

}  // namespace
}  // namespace renga
