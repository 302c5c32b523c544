#include "gateway/openai_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace renga {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

StatusOr<CompletionRequest> Chat(const std::string& more, bool lenient = false) {
  return ParseChatRequest(R"({"messages":[{"role":"user","content":"hi"}])" + more + "}",
                          lenient);
}
StatusOr<CompletionRequest> Text(const std::string& more, bool lenient = false) {
  return ParseCompletionRequest("{\"prompt\":\"hi\"" + more + "}", lenient);
}
// The one native request of a chat that must be sound.
v1::GenerateRequest ChatProto(const std::string& more) {
  StatusOr<CompletionRequest> parsed = Chat(more);
  EXPECT_TRUE(parsed.ok()) << more << ": " << parsed.status().ToString();
  return parsed.ok() ? parsed->prompts.at(0) : v1::GenerateRequest();
}
std::string ChatField(const std::string& more) { return Chat(more).status().field(); }
std::string MessageField(const std::string& message) {
  return ParseChatRequest("{\"messages\":[" + message + "]}", false).status().field();
}

// ---- Fields
// ----------------------------------------------------------------------------

TEST(OpenAiRequestTest, EveryFieldOfTheEngineArrives) {
  const v1::GenerateRequest request = ChatProto(
      R"(,"model":"m","temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"typical_p":0.8,
      "repetition_penalty":1.1,"presence_penalty":-1,"frequency_penalty":2,"seed":42,
      "logit_bias":{"5":-100,"0":1.5},"stop":["a","b"],"stop_token_ids":[3,4],
      "min_tokens":2,"max_tokens":9,"ignore_eos":true,"n":3,"prompt_logprobs":2,
      "logprobs":true,"top_logprobs":4,"priority":"low","deadline_ms":800,
      "cache_salt":"s","no_cache":true,"user":"u","add_generation_prompt":false)");
  EXPECT_EQ(request.model(), "m");
  const v1::SamplingParams& sampling = request.sampling();
  EXPECT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_p(), 0.9f);
  EXPECT_EQ(sampling.top_k(), 7);
  EXPECT_EQ(sampling.min_p(), 0.1f);
  EXPECT_EQ(sampling.typical_p(), 0.8f);
  EXPECT_EQ(sampling.repetition_penalty(), 1.1f);
  EXPECT_EQ(sampling.presence_penalty(), -1.0f);
  EXPECT_EQ(sampling.frequency_penalty(), 2.0f);
  EXPECT_EQ(sampling.seed(), 42u);
  ASSERT_EQ(sampling.logit_bias_size(), 2);
  EXPECT_EQ(sampling.logit_bias(0).token_id(), 5);
  EXPECT_EQ(sampling.logit_bias(0).bias(), -100.0f);
  EXPECT_THAT(request.stop(), ElementsAre("a", "b"));
  EXPECT_THAT(request.stop_token_ids(), ElementsAre(3, 4));
  EXPECT_EQ(request.min_tokens(), 2);
  EXPECT_EQ(request.max_tokens(), 9);
  EXPECT_TRUE(request.ignore_end_token());
  EXPECT_EQ(request.n(), 3);
  EXPECT_EQ(request.prompt_logprobs(), 2);
  EXPECT_EQ(request.logprobs(), 4);
  EXPECT_EQ(request.priority(), v1::PRIORITY_LOW);
  EXPECT_EQ(request.deadline_ms(), 800);
  EXPECT_EQ(request.cache_salt(), "s");
  EXPECT_TRUE(request.no_cache());
  EXPECT_FALSE(request.chat().add_generation_prompt());
}

TEST(OpenAiRequestTest, WhatIsAbsentOrNullIsLeftToTheServer) {
  for (const char* more :
       {"", R"(,"temperature":null,"max_tokens":null,"seed":null,"stop":null,"n":null,
       "logprobs":null,"top_k":null,"logit_bias":null,"stream":null,"tools":null)"}) {
    const v1::GenerateRequest request = ChatProto(more);
    EXPECT_FALSE(request.sampling().has_temperature());
    EXPECT_FALSE(request.sampling().has_seed());
    EXPECT_FALSE(request.sampling().has_top_k());
    EXPECT_FALSE(request.has_max_tokens());
    EXPECT_FALSE(request.has_logprobs());
    EXPECT_EQ(request.stop_size(), 0);
    EXPECT_EQ(request.n(), 1);
  }
}

TEST(OpenAiRequestTest, TheNewerNameOfTheLimitWins) {
  EXPECT_EQ(ChatProto(R"(,"max_tokens":8)").max_tokens(), 8);
  EXPECT_EQ(ChatProto(R"(,"max_completion_tokens":9)").max_tokens(), 9);
  EXPECT_EQ(ChatProto(R"(,"max_tokens":8,"max_completion_tokens":9)").max_tokens(), 9);
  EXPECT_EQ(ChatProto(R"(,"max_tokens":8.0)").max_tokens(), 8);
  EXPECT_EQ(ChatProto(R"(,"max_tokens":2147483648)").max_tokens(), 2147483648);
  EXPECT_EQ(ChatProto(R"(,"max_tokens":9223372036854775808)").max_tokens(), kMost);
  EXPECT_EQ(ChatProto(R"(,"max_tokens":1e300)").max_tokens(), kMost);
  EXPECT_EQ(ChatProto(R"(,"max_tokens":0)").max_tokens(), 0);  // The server refuses it.
  EXPECT_EQ(ChatField(R"(,"max_tokens":8.5)"), "max_tokens");
  EXPECT_EQ(ChatField(R"(,"max_tokens":"8")"), "max_tokens");
}

TEST(OpenAiRequestTest, SeedsOf64BitsAreLegalAndNothingElse) {
  EXPECT_EQ(ChatProto(R"(,"seed":0)").sampling().seed(), 0u);
  EXPECT_EQ(ChatProto(R"(,"seed":2147483648)").sampling().seed(), 2147483648u);
  EXPECT_EQ(ChatProto(R"(,"seed":9223372036854775807)").sampling().seed(),
            9223372036854775807u);
  EXPECT_EQ(ChatProto(R"(,"seed":18446744073709551615)").sampling().seed(),
            18446744073709551615u);
  for (const char* seed :
       {"-1", "1.5", "\"1\"", "true", "18446744073709551616", "1e300", "[]"}) {
    EXPECT_EQ(ChatField(std::string(",\"seed\":") + seed), "seed") << seed;
  }
}

// Each field given as everything that it is not.
TEST(OpenAiRequestTest, EveryWrongTypeIsRefusedByTheFieldsName) {
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"model", "s"},
      {"temperature", "n"},
      {"top_p", "n"},
      {"top_k", "n"},
      {"min_p", "n"},
      {"typical_p", "n"},
      {"seed", "n"},
      {"repetition_penalty", "n"},
      {"presence_penalty", "n"},
      {"logit_bias", "o"},
      {"frequency_penalty", "n"},
      {"stop_token_ids", "l"},
      {"max_tokens", "n"},
      {"max_completion_tokens", "n"},
      {"min_tokens", "n"},
      {"n", "n"},
      {"ignore_eos", "b"},
      {"stream", "b"},
      {"logprobs", "b"},
      {"prompt_logprobs", "n"},
      {"priority", ""},
      {"deadline_ms", "n"},
      {"cache_salt", "s"},
      {"no_cache", "b"},
      {"user", "s"},
      {"add_generation_prompt", "b"},
      {"best_of", "n"},
      {"stream_options", ""},
      {"top_logprobs", ""}};
  const std::vector<std::pair<std::string, std::string>> values = {
      {"s", "\"text\""}, {"n", "1"}, {"b", "true"}, {"l", "[]"}, {"o", "{}"}};
  for (const auto& [field, own] : fields) {
    for (const auto& [kind, value] : values) {
      if (kind == own) continue;
      EXPECT_EQ(ChatField(",\"" + field + "\":" + value), field) << value;
    }
  }
}

TEST(OpenAiRequestTest, LogitBiasKeysAreTokenIds) {
  for (const char* key : {"AI", " 5", "5 ", "-1", "4294967296", "", "0x5", "5.0"}) {
    const std::string field =
        ChatField(",\"logit_bias\":{\"" + std::string(key) + "\":1}");
    EXPECT_EQ(field, "logit_bias." + std::string(key));
  }
  EXPECT_EQ(ChatField(R"(,"logit_bias":{"5":1e308})"), "logit_bias.5");
  EXPECT_EQ(ChatField(R"(,"logit_bias":{"5":"1"})"), "logit_bias.5");
}

TEST(OpenAiRequestTest, StopIsATextOrAListOfTexts) {
  EXPECT_THAT(ChatProto(R"(,"stop":"x")").stop(), ElementsAre("x"));
  EXPECT_EQ(ChatField(R"(,"stop":1)"), "stop");
  EXPECT_EQ(ChatField(R"(,"stop":["a",1])"), "stop[1]");
}

TEST(OpenAiRequestTest, ListsAreAsLongAsTheServersAtMost) {
  std::string stops = R"("x")";
  for (int i = 1; i < 64; ++i) stops += R"(,"x")";
  EXPECT_EQ(ChatProto(",\"stop\":[" + stops + "]").stop_size(), 64);
  EXPECT_EQ(ChatField(",\"stop\":[" + stops + ",\"x\"]"), "stop");
  const std::string message = R"({"role":"user","content":"x"})";
  std::string messages = message;
  for (int i = 0; i < 4096; ++i) messages += ',' + message;
  EXPECT_EQ(ParseChatRequest("{\"messages\":[" + messages + "]}", false).status().field(),
            "messages");
}

TEST(OpenAiRequestTest, UnknownFieldsAreRefusedAndLenientlyIgnored) {
  EXPECT_EQ(ChatField(R"(,"temprature":1)"), "temprature");
  EXPECT_TRUE(Chat(R"(,"temprature":1)", true).ok());
  EXPECT_EQ(Text(R"(,"messages":[])").status().field(), "messages");
}

TEST(OpenAiRequestTest, WhatIsNotSupportedIsRefusedByNameEvenLeniently) {
  for (const char* field :
       {R"("tools":[{"type":"function"}])", R"("tool_choice":"auto")",
        R"("functions":[{}])", R"("response_format":{"type":"json_object"})",
        R"("response_format":{"type":"json_schema"})", R"("session_id":"s")",
        R"("metadata":{"a":"b"})", R"("store":true)", R"("modalities":["audio"])",
        R"("best_of":2)", R"("audio":{"voice":"x"})", R"("guided_json":{"a":1})"}) {
    const std::string name =
        std::string(field).substr(1, std::string(field).find(':') - 2);
    EXPECT_EQ(Chat(std::string(",") + field, true).status().field(), name);
  }
  EXPECT_EQ(Text(R"(,"suffix":"x")").status().field(), "suffix");
  EXPECT_TRUE(Chat(R"(,"tools":[],"tool_choice":"none","response_format":{"type":"text"},
      "store":false,"modalities":["text"],"best_of":1,"service_tier":"auto")")
                  .ok());
}

TEST(OpenAiRequestTest, StreamOptionsNeedAStream) {
  EXPECT_EQ(ChatField(R"(,"stream_options":{"include_usage":true})"), "stream_options");
  const auto parsed = Chat(R"(,"stream":true,"stream_options":{"include_usage":true})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->shape.stream && parsed->shape.include_usage);
  EXPECT_EQ(ChatField(R"(,"stream":true,"stream_options":{"usage":1})"),
            "stream_options.usage");
}

TEST(OpenAiRequestTest, TheNumberOfChoicesIsBounded) {
  for (const char* n : {"0", "-5", "17", "2147483647", "1e30"}) {
    EXPECT_EQ(ChatField(std::string(",\"n\":") + n), "n") << n;
  }
  EXPECT_TRUE(Chat(R"(,"n":16)").ok());
}

TEST(OpenAiRequestTest, TopLogprobsNeedLogprobs) {
  EXPECT_EQ(ChatField(R"(,"top_logprobs":3)"), "top_logprobs");
  EXPECT_EQ(ChatField(R"(,"logprobs":false,"top_logprobs":3)"), "top_logprobs");
  EXPECT_EQ(ChatProto(R"(,"logprobs":true)").logprobs(), 0);
}

// ---- Messages
// --------------------------------------------------------------------------

TEST(OpenAiRequestTest, PartsAreJoinedForEveryRoleAlike) {
  for (const char* role : {"system", "user", "assistant"}) {
    const auto parsed = ParseChatRequest(
        std::string(R"({"messages":[{"role":")") + role +
            R"(","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})",
        false);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->prompts[0].chat().messages(0).content(), "ab");
    EXPECT_EQ(parsed->prompts[0].chat().messages(0).role(), role);
  }
}

TEST(OpenAiRequestTest, WhatThisServerReturnedIsAcceptedBack) {
  const auto parsed = ParseChatRequest(
      R"({"messages":[{"role":"developer","content":"d"},{"role":"assistant",
      "content":null,"refusal":null,"tool_calls":null,"function_call":null,"audio":null,
      "annotations":[]}]})",
      false);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->prompts[0].chat().messages(0).role(), "system");
  EXPECT_EQ(parsed->prompts[0].chat().messages(1).content(), "");
}

TEST(OpenAiRequestTest, MalformedMessagesAreNamed) {
  EXPECT_EQ(ParseChatRequest("{}", false).status().field(), "messages");
  EXPECT_EQ(ParseChatRequest(R"({"messages":[]})", false).status().field(), "messages");
  EXPECT_EQ(ParseChatRequest(R"({"messages":"x"})", false).status().field(), "messages");
  EXPECT_EQ(MessageField("1"), "messages[0]");
  EXPECT_EQ(MessageField(R"({"content":"x"})"), "messages[0].role");
  EXPECT_EQ(MessageField(R"({"role":1,"content":"x"})"), "messages[0].role");
  EXPECT_EQ(MessageField(R"({"role":"user"})"), "messages[0].content");
  EXPECT_EQ(MessageField(R"({"role":"user","content":null})"), "messages[0].content");
  EXPECT_EQ(MessageField(R"({"role":"user","content":{}})"), "messages[0].content");
  EXPECT_EQ(MessageField(R"({"role":"user","content":["x"]})"), "messages[0].content[0]");
  EXPECT_EQ(MessageField(R"({"role":"user","content":[{"type":"image_url"}]})"),
            "messages[0].content[0].type");
  EXPECT_EQ(MessageField(R"({"role":"user","content":[{"type":"text"}]})"),
            "messages[0].content[0].text");
  EXPECT_EQ(MessageField(R"({"role":"user","content":"x","colour":1})"),
            "messages[0].colour");
  EXPECT_EQ(MessageField(R"({"role":"assistant","tool_calls":[{}]})"),
            "messages[0].tool_calls");
}

TEST(OpenAiRequestTest, TextKeepsItsNulsAndTemplateSyntax) {
  const auto parsed = ParseChatRequest(
      R"({"messages":[{"role":"user","content":"a\u0000b{{ 7*7 }}"}]})", false);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->prompts[0].chat().messages(0).content(),
            std::string("a\0b{{ 7*7 }}", 12));
}

// ---- Prompts
// ---------------------------------------------------------------------------

TEST(OpenAiRequestTest, PromptsAreTextsOrTokensOneOrMany) {
  const auto tokens = ParseCompletionRequest(R"({"prompt":[1,2.0,3]})", false);
  ASSERT_TRUE(tokens.ok()) << tokens.status().ToString();
  EXPECT_THAT(tokens->prompts.at(0).token_ids().ids(), ElementsAre(1, 2, 3));
  const auto many = ParseCompletionRequest(R"({"prompt":["a",[4],"c"],"n":2})", false);
  ASSERT_TRUE(many.ok()) << many.status().ToString();
  ASSERT_EQ(many->prompts.size(), 3u);
  EXPECT_EQ(many->prompts[0].text(), "a");
  EXPECT_THAT(many->prompts[1].token_ids().ids(), ElementsAre(4));
  EXPECT_EQ(many->prompts[2].n(), 2);
}

TEST(OpenAiRequestTest, MalformedPromptsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1", "prompt"},
      {"{}", "prompt"},
      {"[]", "prompt"},
      {"null", "prompt"},
      {"[-1]", "prompt[0]"},
      {"[1.5]", "prompt[0]"},
      {"[1,\"a\"]", "prompt[1]"},
      {"[[1],[2147483648]]", "prompt[1][0]"},
      {"[[]]", "prompt[0]"},
      {"[\"a\",1]", "prompt[1]"},
      {"[\"a\",null]", "prompt[1]"},
      {"[true]", "prompt[0]"}};
  for (const auto& [prompt, field] : cases) {
    EXPECT_EQ(
        ParseCompletionRequest("{\"prompt\":" + prompt + "}", false).status().field(),
        field)
        << prompt;
  }
  std::string many = "\"a\"";
  for (size_t i = 0; i < kMaxPrompts; ++i) many += ",\"a\"";
  EXPECT_THAT(
      ParseCompletionRequest("{\"prompt\":[" + many + "]}", false).status().message(),
      HasSubstr("65 prompts; at most 64"));
}

TEST(OpenAiRequestTest, EchoWithLogprobsAsksForThePromptsToo) {
  const auto parsed = Text(R"(,"echo":true,"logprobs":3,"max_tokens":0)");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->shape.echo && parsed->shape.logprobs);
  EXPECT_FALSE(parsed->shape.prompt_logprobs);
  EXPECT_TRUE(parsed->prompts[0].echo());
  EXPECT_EQ(parsed->prompts[0].prompt_logprobs(), 3);
  EXPECT_EQ(parsed->prompts[0].max_tokens(), 0);
  EXPECT_EQ(Text(R"(,"logprobs":true)").status().field(), "logprobs");
}

// ---- Tokens
// ----------------------------------------------------------------------------

TEST(OpenAiRequestTest, TokenizeTakesATextOrAChat) {
  const auto text = ParseTokenizeRequest(R"({"prompt":"x","model":"m"})", false);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->request.text(), "x");
  EXPECT_EQ(text->model, "m");
  const auto chat = ParseTokenizeRequest(
      R"({"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false})",
      false);
  ASSERT_TRUE(chat.ok());
  EXPECT_FALSE(chat->request.chat().add_generation_prompt());
  EXPECT_EQ(ParseTokenizeRequest("{}", false).status().field(), "prompt");
  EXPECT_EQ(
      ParseTokenizeRequest(R"({"prompt":"x","messages":[]})", false).status().field(),
      "prompt");
}

TEST(OpenAiRequestTest, MessagesThatAreNullAreAbsent) {
  const auto parsed = ParseTokenizeRequest(R"({"prompt":"a","messages":null})", false);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->request.text(), "a");
}

TEST(OpenAiRequestTest, DetokenizeTakesTokenIds) {
  const auto parsed = ParseDetokenizeRequest(R"({"tokens":[1,2]})", false);
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed->request.token_ids(), ElementsAre(1, 2));
  EXPECT_EQ(ParseDetokenizeRequest(R"({"tokens":[1,-2]})", false).status().field(),
            "tokens[1]");
  EXPECT_EQ(ParseDetokenizeRequest("{}", false).status().field(), "tokens");
}

TEST(OpenAiRequestTest, NativeNamesOfFieldsBecomeOpenAis) {
  EXPECT_EQ(OpenAiFieldName("ignore_end_token"), "ignore_eos");
  EXPECT_EQ(OpenAiFieldName("token_ids[3]"), "prompt[3]");
  EXPECT_EQ(OpenAiFieldName("text"), "prompt");
  EXPECT_EQ(OpenAiFieldName("top_p"), "top_p");
  EXPECT_EQ(OpenAiFieldName("messages[0].role"), "messages[0].role");
}

TEST(OpenAiRequestTest, AFieldIsNamedAsItsRequestSpelledIt) {
  const AnswerShape plain;
  EXPECT_EQ(ClientFieldName("prompt[2]", plain, 0, 1), "prompt[2]");
  EXPECT_EQ(ClientFieldName("prompt[2]", plain, 1, 3), "prompt[1][2]");
  EXPECT_EQ(ClientFieldName("prompt", plain, 1, 3), "prompt[1]");
  EXPECT_EQ(ClientFieldName("", plain, 1, 3), "");
  EXPECT_EQ(ClientFieldName("max_tokens", plain, 0, 1), "max_tokens");
  EXPECT_EQ(ClientFieldName("prompt_logprobs", plain, 1, 3), "logprobs");  // With echo.
  EXPECT_EQ(ClientFieldName("prompt_logprobs", {.prompt_logprobs = true}, 1, 3),
            "prompt_logprobs");
  EXPECT_EQ(ClientFieldName("logprobs", {.chat = true}, 0, 1), "top_logprobs");
  EXPECT_EQ(ClientFieldName("max_tokens", {.newer_limit = true}, 0, 1),
            "max_completion_tokens");
}

}  // namespace
}  // namespace renga
