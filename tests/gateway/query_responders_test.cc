// Models, tokens, load and health through a whole gateway.

#include "gateway/query_responders.h"

#include <gtest/gtest.h>

#include "tests/gateway/gateway_fixture.h"

namespace renga {
namespace {

namespace json = boost::json;

class QueryRespondersTest : public GatewayTest {};

TEST_F(QueryRespondersTest, TheModelIsListedAndFoundByItsName) {
  const json::value list = Get("/v1/models").Json();
  EXPECT_EQ(list.at("object"), "list");
  ASSERT_EQ(list.at("data").as_array().size(), 1u);
  EXPECT_EQ(list.at("data").at(0).at("id"), "fake");
  EXPECT_EQ(list.at("data").at(0).at("max_model_len"), 100);
  EXPECT_EQ(Get("/v1/models/fake").Json().at("object"), "model");
  const HttpReply other = Get("/v1/models/gpt");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.Json().at("error").at("code"), "model_not_found");
}

TEST_F(QueryRespondersTest, TokensThereAndBack) {
  const json::value tokens =
      Post("/tokenize", R"({"prompt":"ab","model":"fake"})").Json();
  EXPECT_EQ(tokens.at("tokens"), (json::array{97, 98}));
  EXPECT_EQ(tokens.at("count"), 2);
  EXPECT_EQ(tokens.at("max_model_len"), 100);
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[97,98]})").Json().at("prompt"), "ab");
  EXPECT_EQ(Post("/tokenize", R"({"prompt":"ab","model":"gpt"})").status, 404);
  EXPECT_EQ(Post("/detokenize", R"({"tokens":"ab"})").status, 400);
  EXPECT_EQ(Post("/tokenize", R"({"prompt":")" + std::string(100'000, 'x') + "\"}")
                .Json()
                .at("count"),
            100'000);
}

TEST_F(QueryRespondersTest, ARefusalOfTheServerIsPassedOn) {
  fake_.tokenize_status = {grpc::StatusCode::INVALID_ARGUMENT, "chat: no template"};
  const HttpReply reply =
      Post("/tokenize", R"({"messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.Json().at("error").at("param"), "messages");
}

TEST_F(QueryRespondersTest, ARefusedTokenIsNamedAsItsRouteCallsIt) {
  fake_.detokenize_status = {grpc::StatusCode::INVALID_ARGUMENT, "token_ids[1]: is 9"};
  const HttpReply reply = Post("/detokenize", R"({"tokens":[1,9]})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.Json().at("error").at("param"), "tokens[1]");
}

TEST_F(QueryRespondersTest, LoadHasWhatThePageShows) {
  const json::value load = Get("/api/load").Json();
  EXPECT_EQ(load.at("ready"), true);
  EXPECT_EQ(load.at("running"), 3);
  EXPECT_EQ(load.at("waiting"), 2);
  EXPECT_EQ(load.at("kv_pages_free"), 60);
  EXPECT_EQ(load.at("busy_share"), 0.5);
  EXPECT_EQ(load.at("predicted_first_token_ms"), 12.5);
  EXPECT_EQ(load.at("model").at("id"), "fake");
}

TEST_F(QueryRespondersTest, AServerThatDrainsStillShowsItsLoad) {
  fake_.model_status = {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
  const HttpReply reply = Get("/api/load");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.Json().at("running"), 3);
  EXPECT_TRUE(reply.Json().at("model").is_null());
}

TEST_F(QueryRespondersTest, SeveralServersAreAddedUpWithoutThoseThatAreAway) {
  FakeInference second_inference;
  FakeServer second(second_inference);
  auto gateway = HttpGateway::Start(
      settings_,
      {server_.InProcess(TargetChannelArguments()), MakeTargetChannel(second.address()),
       MakeTargetChannel("127.0.0.1:1")},
      options_);
  ASSERT_TRUE(gateway.ok());
  HttpClient client((*gateway)->address());
  client.Get("/api/load");
  const json::value load = client.ReadReply().Json();
  EXPECT_EQ(load.at("servers"), 3);
  EXPECT_EQ(load.at("servers_answering"), 2);
  EXPECT_EQ(load.at("running"), 6);
  EXPECT_EQ(load.at("busy_share"), 0.5);
  client.Get("/health");
  EXPECT_EQ(client.ReadReply().status, 200);
}

TEST_F(QueryRespondersTest, HealthIsTheServers) {
  EXPECT_EQ(Get("/health").Json().at("status"), "ready");
  server_.SetServing(false);
  EXPECT_EQ(Get("/health").status, 503);
  server_.SetServing(true);
  EXPECT_EQ(Get("/health").status, 200);
}

TEST_F(QueryRespondersTest, AServerThatIsNotThereIsNotReady) {
  auto gateway =
      HttpGateway::Start(settings_, {MakeTargetChannel("127.0.0.1:1")}, options_);
  ASSERT_TRUE(gateway.ok());
  for (const char* path : {"/health", "/v1/models", "/api/load"}) {
    HttpClient client((*gateway)->address());
    client.Get(path);
    const HttpReply reply = client.ReadReply();
    EXPECT_EQ(reply.status, 503) << path;
    EXPECT_EQ(reply.body.find("127.0.0.1"), std::string::npos) << reply.body;
  }
}

}  // namespace
}  // namespace renga
