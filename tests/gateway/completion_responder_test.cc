// Answers of /v1/chat/completions and /v1/completions through a whole gateway, against a
// fake server of the native API.

#include "gateway/completion_responder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/gateway/gateway_fixture.h"

namespace renga {
namespace {

namespace json = boost::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class CompletionResponderTest : public GatewayTest {
 protected:
  std::vector<json::value> Events(const HttpReply& reply) {
    std::vector<json::value> events;
    for (const std::string& data : SseData(reply.body)) {
      if (data != "[DONE]") events.push_back(json::parse(data));
    }
    return events;
  }
};

TEST_F(CompletionResponderTest, AChatIsAnsweredInOpenAisShape) {
  const HttpReply reply = Chat();
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.Header("Content-Type"), "application/json");
  const json::value body = reply.Json();
  EXPECT_THAT(body.at("id").as_string().c_str(), StartsWith("chatcmpl-"));
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("model"), "fake");
  EXPECT_EQ(body.at("system_fingerprint"), "n1");
  EXPECT_GT(body.at("created").as_int64(), 1'700'000'000);
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("index"), 0);
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("message").at("content"), "Hello world");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 7);
  EXPECT_EQ(body.at("usage").at("total_tokens"), 9);
  EXPECT_EQ(body.at("timings").at("queue_ms"), 1.5);
}

TEST_F(CompletionResponderTest, AStreamHasItsRoleFirstItsEndOnceAndOneId) {
  const HttpReply reply = Chat(R"(,"stream":true)");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.Header("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(SseData(reply.body).back(), "[DONE]");
  const std::vector<json::value> events = Events(reply);
  ASSERT_EQ(events.size(), 4u) << reply.body;
  EXPECT_EQ(events[0].at("choices").at(0).at("delta").at("role"), "assistant");
  std::string text;
  for (const json::value& event : events) {
    EXPECT_EQ(event.at("id"), events[0].at("id"));
    EXPECT_EQ(event.at("object"), "chat.completion.chunk");
    EXPECT_EQ(event.at("system_fingerprint"), "n1");
    EXPECT_FALSE(event.as_object().contains("usage"));
    const json::value& choice = event.at("choices").at(0);
    if (choice.at("delta").as_object().contains("content")) {
      text += choice.at("delta").at("content").as_string().c_str();
    }
    EXPECT_EQ(choice.at("finish_reason").is_null(), &event != &events.back());
  }
  EXPECT_EQ(text, "Hello world");
  EXPECT_EQ(events.back().at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(events.back().at("timings").at("queue_ms"), 1.5);
}

TEST_F(CompletionResponderTest, UsageComesInOneLastChunkWhenItIsAskedFor) {
  const HttpReply reply =
      Chat(R"(,"stream":true,"stream_options":{"include_usage":true})");
  const std::vector<json::value> events = Events(reply);
  ASSERT_EQ(events.size(), 5u) << reply.body;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    EXPECT_TRUE(events[i].at("usage").is_null());
  }
  EXPECT_TRUE(events[4].at("choices").as_array().empty());
  EXPECT_EQ(events[4].at("usage").at("completion_tokens"), 2);
}

TEST_F(CompletionResponderTest, SeveralPromptsAreSeveralChoices) {
  fake_.script = [](const v1::GenerateRequest& request) {
    return AnswerOf({"to " + request.text()});
  };
  const HttpReply reply = Post("/v1/completions", R"({"prompt":["a","b","c"]})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json::value body = reply.Json();
  ASSERT_EQ(body.at("choices").as_array().size(), 3u);
  EXPECT_EQ(body.at("choices").at(1).at("text"), "to b");
  EXPECT_EQ(body.at("choices").at(2).at("index"), 2);
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 21);
  EXPECT_FALSE(body.as_object().contains("timings"));
}

TEST_F(CompletionResponderTest, SeveralPromptsStreamSideBySide) {
  fake_.script = [](const v1::GenerateRequest& request) {
    return AnswerOf({"to ", request.text()});
  };
  const HttpReply reply =
      Post("/v1/completions", R"({"prompt":["a","b","c"],"stream":true})");
  std::vector<std::string> texts(3);
  std::vector<int> ends(3);
  for (const json::value& event : Events(reply)) {
    const json::value& choice = event.at("choices").at(0);
    const size_t index = static_cast<size_t>(choice.at("index").as_int64());
    texts[index] += choice.at("text").as_string().c_str();
    ends[index] += choice.at("finish_reason").is_null() ? 0 : 1;
  }
  EXPECT_THAT(texts, ElementsAre("to a", "to b", "to c"));
  EXPECT_THAT(ends, ElementsAre(1, 1, 1));
  EXPECT_EQ(SseData(reply.body).back(), "[DONE]");
}

TEST_F(CompletionResponderTest, ABodyThatIsReadApartIsAnsweredTheSame) {
  const std::string text(100'000, 'x');
  const HttpReply reply = Post("/v1/completions", R"({"prompt":")" + text + "\"}");
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(fake_.last_request().text(), text);
  const HttpReply broken = Post("/v1/completions", R"({"prompt":")" + text + "\",}");
  EXPECT_EQ(broken.status, 400);
}

// ---- Failures ------------------------------------------------------------------------

TEST_F(CompletionResponderTest, ARefusalIsAPlainStatusForStreamsToo) {
  fake_.script = [](const v1::GenerateRequest&) {
    return GenerateScript{
        .events = {},
        .end = {grpc::StatusCode::INVALID_ARGUMENT, "top_p: must be in (0, 1]"}};
  };
  for (const char* stream : {"false", "true"}) {
    const HttpReply reply = Chat(std::string(R"(,"stream":)") + stream);
    EXPECT_EQ(reply.status, 400);
    const json::value error = reply.Json().at("error");
    EXPECT_EQ(error.at("message"), "top_p: must be in (0, 1]");
    EXPECT_EQ(error.at("param"), "top_p");
    EXPECT_EQ(error.at("type"), "invalid_request_error");
  }
}

TEST_F(CompletionResponderTest, OverloadSaysWhenToComeBack) {
  fake_.script = [](const v1::GenerateRequest&) {
    google::rpc::RetryInfo info;
    info.mutable_retry_delay()->set_nanos(250'000'000);
    google::rpc::Status rich;
    rich.set_code(8);
    rich.add_details()->PackFrom(info);
    return GenerateScript{.events = {},
                          .end = {grpc::StatusCode::RESOURCE_EXHAUSTED,
                                  "the queue is full", rich.SerializeAsString()}};
  };
  const HttpReply reply = Chat();
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.Header("Retry-After"), "1");
  EXPECT_EQ(reply.Header("Retry-After-Ms"), "250");
  EXPECT_EQ(ErrorMessage(reply), "the queue is full");
}

TEST_F(CompletionResponderTest, AFailureInMidStreamIsAnErrorEventAndTheEnd) {
  fake_.script = [](const v1::GenerateRequest&) {
    GenerateScript script = AnswerOf({"a", "b"});
    script.events.pop_back();
    script.end = {grpc::StatusCode::INTERNAL, "a step failed"};
    return script;
  };
  HttpClient client(address());
  client.Post("/v1/chat/completions",
              R"({"messages":[{"role":"user","content":"x"}],"stream":true})");
  const HttpReply reply = client.ReadReply();
  EXPECT_EQ(reply.status, 200);
  const std::vector<std::string> events = SseData(reply.body);
  ASSERT_EQ(events.size(), 4u) << reply.body;
  EXPECT_EQ(json::parse(events[3]).at("error").at("message"), "a step failed");
  // The connection is as good as before.
  client.Get("/health");
  EXPECT_EQ(client.ReadReply().status, 200);
}

TEST_F(CompletionResponderTest, AnAnswerWithoutAnEndIsAnError) {
  fake_.script = [](const v1::GenerateRequest&) {
    GenerateScript script = AnswerOf({"a"});
    script.events.pop_back();
    return script;
  };
  EXPECT_THAT(SseData(Chat(R"(,"stream":true)").body).back(), HasSubstr("broke off"));
}

TEST_F(CompletionResponderTest, ALongWaitGetsCommentsAndALaterFailureIsAnEvent) {
  settings_.keep_alive_ms = 20;
  fake_.script = [](const v1::GenerateRequest&) {
    return GenerateScript{.events = {}, .silent = true};
  };
  HttpClient client(address());
  client.Post("/v1/chat/completions",
              R"({"messages":[{"role":"user","content":"x"}],"stream":true})");
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_EQ(client.ReadChunk(), ": keep-alive\n\n");
  EXPECT_EQ(client.ReadChunk(), ": keep-alive\n\n");
  gateway_->Stop();
  std::string rest;
  while (const auto chunk = client.ReadChunk()) rest += *chunk;
  EXPECT_THAT(rest, HasSubstr("\"code\":\"unavailable\""));
}

// ---- Clients that go, or read slowly
// ---------------------------------------------------

TEST_F(CompletionResponderTest, AClientThatGoesEndsItsGeneration) {
  fake_.script = [](const v1::GenerateRequest&) {
    GenerateScript script{.events = {StartedEvent(), ChunkEvent("x")}};
    script.endless = true;
    return script;
  };
  HttpClient client(address());
  client.Post("/v1/chat/completions",
              R"({"messages":[{"role":"user","content":"x"}],"stream":true})");
  EXPECT_EQ(client.ReadHead().status, 200);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(client.ReadChunk());
  client.Reset();
  fake_.WaitFor([](const auto& counts) { return counts.cancelled == 1; });
}

TEST_F(CompletionResponderTest, AClientThatGoesWhileItWaitsEndsItsGeneration) {
  fake_.script = [](const v1::GenerateRequest&) {
    return GenerateScript{.events = {}, .silent = true};
  };
  for (const char* stream : {"false", "true"}) {
    const int64_t before = fake_.counts().cancelled;
    HttpClient client(address());
    client.Post("/v1/chat/completions",
                std::string(R"({"messages":[{"role":"user","content":"x"}],"stream":)") +
                    stream + '}');
    fake_.WaitFor([&](const auto& counts) { return counts.running() == 1; });
    client.Close();
    fake_.WaitFor([&](const auto& counts) { return counts.cancelled == before + 1; });
  }
}

TEST_F(CompletionResponderTest, ASlowReaderHoldsUpOnlyItselfAndIsCut) {
  options_.write_timeout = std::chrono::milliseconds(300);
  fake_.script = [](const v1::GenerateRequest& request) {
    if (request.chat().messages(0).content() != "endless") return AnswerOf({"quick"});
    GenerateScript script{.events = {StartedEvent(), ChunkEvent(std::string(4000, 'x'))}};
    script.endless = true;
    return script;
  };
  HttpClient slow(address(), 4096);
  slow.Post("/v1/chat/completions",
            R"({"messages":[{"role":"user","content":"endless"}],"stream":true})");
  fake_.WaitFor([](const auto& counts) { return counts.written > 5; });
  EXPECT_EQ(Chat().status, 200);
  const auto counts = fake_.WaitFor([](const auto& c) { return c.cancelled == 1; });
  // What the kernel's buffers and one message hold: nothing piled up in between.
  EXPECT_LT(counts.written * 4000, 4 << 20);
}

// ---- What travels
// ------------------------------------------------------------------------

TEST_F(CompletionResponderTest, HeadersTravelAsMetadataAndTheIdComesBack) {
  const HttpReply reply = Chat("",
                               "X-Request-Id: abc\r\nx-tenant-id: t1\r\n"
                               "X-SESSION-ID: s1\r\nAuthorization: Bearer k\r\n");
  EXPECT_EQ(reply.Header("X-Request-Id"), "abc");
  const auto metadata = fake_.last_metadata();
  EXPECT_EQ(metadata.at("x-request-id"), "abc");
  EXPECT_EQ(metadata.at("x-tenant-id"), "t1");
  EXPECT_EQ(metadata.at("x-session-id"), "s1");
  EXPECT_EQ(metadata.at("authorization"), "Bearer k");
}

TEST_F(CompletionResponderTest, TheDeadlineHeaderCountsIfItIsTheEarlierOne) {
  Chat(R"(,"deadline_ms":500)", "X-Deadline-Ms: 900\r\n");
  EXPECT_EQ(fake_.last_request().deadline_ms(), 500);
  Chat("", "X-Deadline-Ms: 900\r\n");
  EXPECT_EQ(fake_.last_request().deadline_ms(), 900);
  for (const char* wrong : {"soon", "0", "-1", "86400001", "99999999999999999999"}) {
    const HttpReply reply = Chat("", std::string("X-Deadline-Ms: ") + wrong + "\r\n");
    EXPECT_EQ(reply.status, 400) << wrong;
    EXPECT_EQ(reply.Json().at("error").at("param"), "x-deadline-ms") << wrong;
  }
}

TEST_F(CompletionResponderTest, AWrongPromptOfSeveralIsNamedByItsNumber) {
  fake_.script = [](const v1::GenerateRequest& request) {
    if (request.text() != "bad") return GenerateScript{.events = {}, .silent = true};
    return GenerateScript{.events = {},
                          .end = {grpc::StatusCode::INVALID_ARGUMENT, "text: is bad"}};
  };
  for (const char* stream : {"false", "true"}) {
    const HttpReply reply =
        Post("/v1/completions",
             std::string(R"({"prompt":["good","bad"],"stream":)") + stream + "}");
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.Json().at("error").at("param"), "prompt[1]");
    EXPECT_EQ(ErrorMessage(reply), "prompt[1]: is bad");
  }
}

TEST_F(CompletionResponderTest, ALateRefusalOfOnePromptStillRefusesTheLot) {
  fake_.script = [this](const v1::GenerateRequest& request) {
    if (request.text() == "good") return AnswerOf({"a", "b"});
    fake_.WaitFor([](const auto& counts) { return counts.written >= 4; });
    return GenerateScript{.events = {},
                          .end = {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"}};
  };
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":["good","bad"],"stream":true})").status,
            429);
}

TEST_F(CompletionResponderTest, OnePromptThatWaitsHoldsUpLittleOfTheOthers) {
  fake_.script = [](const v1::GenerateRequest& request) {
    if (request.text() != "late") return AnswerOf({std::string(8192, 'x')});
    return GenerateScript{.events = {}, .silent = true};
  };
  HttpClient client(address());
  client.Post("/v1/completions", R"({"prompt":["first","late"],"stream":true})");
  EXPECT_NE(client.ReadUntil("xxxx").find("HTTP/1.1 200"), std::string::npos);
}

TEST_F(CompletionResponderTest, StreamAndWholeAnswerHaveTheSameText) {
  fake_.script = [](const v1::GenerateRequest&) {
    return AnswerOf(
        {"\xE2\x82\xAC", "\"\\\n", "\xF0\x9F\x98\x80", std::string("\0z", 2)});
  };
  std::string streamed;
  for (const json::value& event : Events(Chat(R"(,"stream":true)"))) {
    const json::object& delta = event.at("choices").at(0).at("delta").as_object();
    if (!delta.contains("content")) continue;
    const json::string& content = delta.at("content").as_string();
    streamed.append(content.data(), content.size());
  }
  const json::value whole = Chat().Json();
  const json::string& content =
      whole.at("choices").at(0).at("message").at("content").as_string();
  EXPECT_EQ(streamed, std::string(content.data(), content.size()));
  EXPECT_EQ(streamed.size(), 12u);
}

}  // namespace
}  // namespace renga
