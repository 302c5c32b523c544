// Calls of a server over a real connection, by one who waits.

#include "app/chat_client.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/gateway/fake_inference.h"

namespace renga {
namespace {

class ChatClientTest : public testing::Test {
 protected:
  // Asks, and returns the text that came.
  Status Ask(ChatClient& client, std::string& text) {
    v1::GenerateRequest request;
    request.set_text("hi");
    return client.Ask(request, [&](const v1::GenerateResponse& event) {
      if (event.has_chunk()) text += event.chunk().text();
    });
  }

  FakeInference fake_;
  FakeServer server_{fake_};
};

TEST_F(ChatClientTest, AnAnswerComesWholeAndInOrder) {
  ChatClient client(server_.address(), "");
  const auto model = client.GetModel();
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->name(), "fake");
  for (int i = 0; i < 3; ++i) {
    std::string text;
    EXPECT_TRUE(Ask(client, text).ok());
    EXPECT_EQ(text, "Hello world");
  }
  EXPECT_EQ(fake_.counts().started, 3);
}

TEST_F(ChatClientTest, TheKeyIsSentWithEveryCall) {
  fake_.wanted_key = "secret";
  ChatClient without(server_.address(), "");
  EXPECT_EQ(without.GetModel().status().code(), StatusCode::kUnauthenticated);
  ChatClient client(server_.address(), "secret");
  EXPECT_TRUE(client.GetModel().ok());
  std::string text;
  EXPECT_TRUE(Ask(client, text).ok());
}

TEST_F(ChatClientTest, AFailureKeepsItsCodeAndWhatCameBeforeIt) {
  fake_.script = [](const v1::GenerateRequest&) {
    GenerateScript script = AnswerOf({"Hel"});
    script.events.pop_back();
    script.end = {grpc::StatusCode::INTERNAL, "broken"};
    return script;
  };
  ChatClient client(server_.address(), "");
  std::string text;
  const Status status = Ask(client, text);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(text, "Hel");
}

TEST_F(ChatClientTest, ACancelEndsTheAnswerAndFreesTheServer) {
  fake_.script = [](const v1::GenerateRequest&) {
    GenerateScript script;
    script.events = {StartedEvent(), ChunkEvent("x")};
    script.endless = true;
    return script;
  };
  ChatClient client(server_.address(), "");
  std::thread other([&] {
    fake_.WaitFor([](const auto& counts) { return counts.written >= 5; });
    client.Cancel();
  });
  std::string text;
  EXPECT_EQ(Ask(client, text).code(), StatusCode::kCancelled);
  other.join();
  EXPECT_EQ(fake_.WaitFor([](const auto& counts) { return counts.ended == 1; }).cancelled,
            1);
}

TEST_F(ChatClientTest, ACancelWithoutAnAnswerDoesNotEndTheNextOne) {
  ChatClient client(server_.address(), "");
  client.Cancel();
  std::string text;
  EXPECT_TRUE(Ask(client, text).ok());
  client.Cancel();
  EXPECT_TRUE(Ask(client, text).ok());
}

TEST_F(ChatClientTest, AServerThatIsNotThereIsAnError) {
  ChatClient client("127.0.0.1:1", "");
  EXPECT_EQ(client.GetModel().status().code(), StatusCode::kUnavailable);
  std::string text;
  EXPECT_EQ(Ask(client, text).code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace renga
