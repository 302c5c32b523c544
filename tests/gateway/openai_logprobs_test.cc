#include "gateway/openai_logprobs.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <limits>

namespace renga {
namespace {

namespace json = boost::json;

v1::TokenLogprob Token(const std::string& bytes, float logprob, int32_t id = 1) {
  v1::TokenLogprob token;
  token.set_token_id(id);
  token.set_token(bytes);
  token.set_logprob(logprob);
  return token;
}

json::value Written(CompletionLogprobs& logprobs) {
  JsonWriter writer;
  logprobs.WriteAdded(writer);
  return json::parse(std::move(writer).Take());
}

TEST(OpenAiLogprobsTest, ChatEntriesHaveTheExactBytes) {
  TokenLogprobs tokens;
  v1::TokenLogprob& token = *tokens.Add() = Token("\xE2\x82", -0.5f);
  v1::TopLogprob& top = *token.add_top();
  top.set_token("a");
  top.set_logprob(-std::numeric_limits<float>::infinity());
  JsonWriter writer;
  WriteChatLogprobs(writer, tokens);
  EXPECT_EQ(
      std::move(writer).Take(),
      "{\"content\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[226,130],"
      "\"top_logprobs\":[{\"token\":\"a\",\"logprob\":-9999,\"bytes\":[97]}]}],"
      "\"refusal\":null}");
}

TEST(OpenAiLogprobsTest, ThePromptsFirstTokenHasNone) {
  TokenLogprobs tokens;
  *tokens.Add() = Token("b", -1.0f);
  JsonWriter writer;
  WritePromptLogprobs(writer, tokens);
  const json::value value = json::parse(std::move(writer).Take());
  ASSERT_EQ(value.as_array().size(), 2u);
  EXPECT_TRUE(value.at(0).is_null());
  EXPECT_EQ(value.at(1).at("token"), "b");
}

TEST(OpenAiLogprobsTest, OffsetsCountCharactersAcrossPartsOfACharacter) {
  CompletionLogprobs logprobs;
  logprobs.AddFirst("é", 9);               // 0
  logprobs.Add(Token("ab", -1.0f));        // 1, 2
  logprobs.Add(Token("\xF0\x9F", -1.0f));  // 3
  logprobs.Add(Token("\x98\x80", -1.0f));  // still 3
  logprobs.Add(Token("z", -1.0f));         // 4
  json::value value = Written(logprobs);
  EXPECT_EQ(value.at("text_offset"), (json::array{0, 1, 3, 3, 4}));
  EXPECT_TRUE(value.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(value.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(value.at("tokens").at(2), "bytes:\\xf0\\x9f");
  EXPECT_TRUE(logprobs.empty());
  // A stream goes on counting.
  logprobs.Add(Token("", -1.0f, 2));
  value = Written(logprobs);
  EXPECT_EQ(value.at("text_offset"), (json::array{5}));
  EXPECT_EQ(value.at("tokens").at(0), "token_id:2");
}

TEST(OpenAiLogprobsTest, TheChosenTokenIsAmongTheTopOnes) {
  v1::TokenLogprob token = Token("x", -3.0f, 7);
  v1::TopLogprob& best = *token.add_top();
  best.set_token_id(8);
  best.set_token("y");
  best.set_logprob(-0.25f);
  CompletionLogprobs logprobs;
  logprobs.Add(token);
  token.set_token_id(8);
  logprobs.Add(token);
  const json::value value = Written(logprobs);
  EXPECT_EQ(value.at("top_logprobs").at(0), (json::object{{"y", -0.25}, {"x", -3}}));
  EXPECT_EQ(value.at("top_logprobs").at(1), (json::object{{"y", -0.25}}));
}

}  // namespace
}  // namespace renga
