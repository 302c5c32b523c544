// Which path answers what: methods, keys, CORS, draining, the page.

#include "gateway/gateway_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/gateway/gateway_fixture.h"

namespace renga {
namespace {

using testing::HasSubstr;

class GatewayRoutesTest : public GatewayTest {
 protected:
  HttpReply Ask(const std::string& method, const std::string& path,
                const std::string& headers = "") {
    HttpClient client(address());
    client.Get(path, headers, method);
    return client.ReadReply(method == "HEAD");
  }
};

TEST_F(GatewayRoutesTest, UnknownPathsAndWrongMethodsAreRefusedInOpenAisShape) {
  for (const char* path : {"/nothing", "/v1/models/", "/v1/chat/completions/", "//",
                           "/page/", "/page/../main.cc", "/v1/embeddings"}) {
    const HttpReply reply = Ask("GET", path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_EQ(reply.Json().at("error").at("type"), "invalid_request_error");
  }
  const HttpReply get = Ask("GET", "/v1/chat/completions");
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.Header("Allow"), "POST");
  EXPECT_EQ(Ask("DELETE", "/health").Header("Allow"), "GET, HEAD");
  EXPECT_EQ(Ask("POST", "/").status, 405);
  EXPECT_EQ(Ask("BREW", "/health").status, 405);
  const HttpReply responses = Post("/v1/responses", "{}");
  EXPECT_EQ(responses.status, 404);
  EXPECT_THAT(ErrorMessage(responses), HasSubstr("/v1/responses is not supported"));
}

TEST_F(GatewayRoutesTest, PercentEncodedPathsAreTheSamePaths) {
  EXPECT_EQ(Ask("GET", "/%68ealth").status, 200);
  EXPECT_EQ(Ask("GET", "/health?verbose").status, 200);
  fake_.model_name = "a b/c";
  EXPECT_EQ(Ask("GET", "/v1/models/a%20b/c").Json().at("id"), "a b/c");
}

TEST_F(GatewayRoutesTest, HeadIsGetWithoutTheBody) {
  EXPECT_EQ(Ask("HEAD", "/health").status, 200);
  EXPECT_EQ(Ask("HEAD", "/v1/completions").status, 405);
  EXPECT_EQ(Ask("HEAD", "/").Header("Content-Length"),
            std::to_string(Ask("GET", "/").body.size()));
}

TEST_F(GatewayRoutesTest, ThePageAndAllItRefersToAreThere) {
  const HttpReply index = Get("/");
  EXPECT_EQ(index.status, 200);
  EXPECT_EQ(index.Header("Content-Type"), "text/html; charset=utf-8");
  EXPECT_THAT(index.Header("Content-Security-Policy"), HasSubstr("default-src 'none'"));
  EXPECT_THAT(index.body, HasSubstr("<!doctype html>"));
  int files = 0;
  for (size_t at = 0; (at = index.body.find("\"/page/", at)) != std::string::npos; ++at) {
    const std::string path =
        index.body.substr(at + 1, index.body.find('"', at + 1) - at - 1);
    EXPECT_EQ(Get(path).status, 200) << path;
    ++files;
  }
  EXPECT_GE(files, 3);
  // Nothing from elsewhere, no script in the page itself.
  EXPECT_EQ(index.body.find("http"), std::string::npos);
  EXPECT_EQ(index.body.find("style="), std::string::npos);
  EXPECT_EQ(Get("/page/chat.js").Header("Content-Type"),
            "text/javascript; charset=utf-8");
}

// Every path but health and the page's files.
TEST_F(GatewayRoutesTest, WithKeysOnEveryPathWantsOne) {
  options_.require_key = true;
  fake_.wanted_key = "secret";
  std::vector<std::string> paths = {"/nothing", "/v1", "/metrics", "/debug/requests"};
  for (const RouteInfo& route : Routes()) {
    std::string path(route.path);
    if (path.ends_with('*')) path.replace(path.size() - 1, 1, "fake");
    if (!route.open) paths.push_back(std::move(path));
  }
  ASSERT_GE(paths.size(), 12u);
  for (const std::string& path : paths) {
    for (const char* method : {"GET", "POST", "HEAD", "OPTIONS"}) {
      const HttpReply reply = Ask(method, path);
      EXPECT_EQ(reply.status, 401) << method << path;
      EXPECT_EQ(reply.Header("WWW-Authenticate"), "Bearer");
    }
  }
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/").status, 200);
  EXPECT_EQ(Get("/page/chat.css").status, 200);
  for (const char* key : {"wrong", "secre", "secret2", ""}) {
    const std::string header = "Authorization: Bearer " + std::string(key) + "\r\n";
    EXPECT_EQ(Chat("", header).status, 401);
    EXPECT_EQ(Get("/v1/models", header).status, 401);
    EXPECT_EQ(Get("/api/load", header).status, 401);
  }
  const std::string header = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(Chat("", header).status, 200);
  EXPECT_EQ(Get("/v1/models", header).status, 200);
}

TEST_F(GatewayRoutesTest, OnlyHealthIsOpen) {
  for (const RouteInfo& route : Routes()) {
    EXPECT_EQ(route.open, route.path == "/health") << route.path;
  }
}

TEST_F(GatewayRoutesTest, RouteNamesAreFewWhateverIsAsked) {
  EXPECT_EQ(RouteName("/v1/models/some model"), "/v1/models/*");
  EXPECT_EQ(RouteName("/v1/models"), "/v1/models");
  EXPECT_EQ(RouteName("/"), "page");
  EXPECT_EQ(RouteName("/page/chat.js"), "page");
  EXPECT_EQ(RouteName("/made/up"), "other");
  EXPECT_EQ(RouteName(""), "other");
}

TEST_F(GatewayRoutesTest, OtherOriginsAreLetInOnlyIfTheyAreConfigured) {
  const std::string preflight =
      "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n";
  EXPECT_EQ(Ask("OPTIONS", "/v1/chat/completions", preflight).status, 405);
  EXPECT_EQ(
      Chat("", "Origin: https://a.example\r\n").Header("Access-Control-Allow-Origin"),
      "");
  gateway_.reset();
  settings_.cors_origins = "https://a.example";
  const HttpReply reply = Ask("OPTIONS", "/v1/chat/completions", preflight);
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.Header("Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_THAT(reply.Header("Access-Control-Allow-Headers"), HasSubstr("Authorization"));
  EXPECT_EQ(
      Chat("", "Origin: https://a.example\r\n").Header("Access-Control-Allow-Origin"),
      "https://a.example");
  const HttpReply error = Chat(R"(,"n":"x")", "Origin: https://a.example\r\n");
  EXPECT_EQ(error.Header("Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(
      Chat("", "Origin: https://b.example\r\n").Header("Access-Control-Allow-Origin"),
      "");
}

TEST_F(GatewayRoutesTest, FormsOfForeignPagesAreRefused) {
  HttpClient client(address());
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
      "Content-Length: 2\r\n\r\n{}");
  EXPECT_EQ(client.ReadReply().status, 415);
}

TEST_F(GatewayRoutesTest, AHeaderThatCannotTravelIsRefused) {
  const HttpReply reply = Chat("", "X-Tenant-Id: \xC3\xA9\r\n");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.Json().at("error").at("param"), "x-tenant-id");
}

}  // namespace
}  // namespace renga
