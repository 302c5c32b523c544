#include "app/chat_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace renga {
namespace {

using Action = ChatSession::Action;
using Kind = ChatSession::Action::Kind;
using Message = ChatSession::Message;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// "role: content" of all that a request sends.
std::vector<std::string> Sent(const ChatSession& session) {
  std::vector<std::string> out;
  const v1::GenerateRequest request = session.Request();
  for (const v1::ChatMessage& message : request.chat().messages()) {
    out.push_back(message.role() + ": " + message.content());
  }
  return out;
}

void Exchange(ChatSession& session, const std::string& question,
              const std::string& answer) {
  ASSERT_EQ(session.Enter(question).kind, Kind::kAsk);
  session.Answered(answer);
}

TEST(ChatSessionTest, AMessageIsSentWithAllBeforeIt) {
  ChatSession session("Be brief.");
  Exchange(session, "Hello", "Hi!");
  ASSERT_EQ(session.Enter("How are you? ").kind, Kind::kAsk);
  EXPECT_THAT(Sent(session), ElementsAre("system: Be brief.", "user: Hello",
                                         "assistant: Hi!", "user: How are you? "));
}

TEST(ChatSessionTest, WhatWasNotAnsweredIsNotPartOfTheHistory) {
  ChatSession session;
  session.Enter("lost");
  session.NotAnswered();
  session.Enter("second");
  EXPECT_THAT(Sent(session), ElementsAre("user: second"));
}

TEST(ChatSessionTest, EmptyLinesDoNothing) {
  ChatSession session;
  for (const char* line : {"", " ", "\t \r"}) {
    EXPECT_EQ(session.Enter(line).kind, Kind::kNothing);
  }
}

TEST(ChatSessionTest, RetryAsksTheLastMessageAgainWithoutItsAnswer) {
  ChatSession session;
  EXPECT_EQ(session.Enter("/retry").kind, Kind::kFail);
  Exchange(session, "one", "1");
  Exchange(session, "two", "2");
  ASSERT_EQ(session.Enter("/retry").kind, Kind::kAsk);
  EXPECT_THAT(Sent(session), ElementsAre("user: one", "assistant: 1", "user: two"));
  session.NotAnswered();
  ASSERT_EQ(session.Enter("/retry").kind, Kind::kAsk);  // It failed: once more.
  EXPECT_THAT(Sent(session), ElementsAre("user: one", "assistant: 1", "user: two"));
}

TEST(ChatSessionTest, RetryAfterAFailureKeepsAnEarlierEqualQuestion) {
  ChatSession session;
  Exchange(session, "again", "first");
  session.Enter("again");
  session.NotAnswered();
  ASSERT_EQ(session.Enter("/retry").kind, Kind::kAsk);
  EXPECT_THAT(Sent(session),
              ElementsAre("user: again", "assistant: first", "user: again"));
}

TEST(ChatSessionTest, ResetForgetsAllButTheSystemPrompt) {
  ChatSession session("Be brief.");
  Exchange(session, "one", "1");
  EXPECT_EQ(session.Enter("/reset").kind, Kind::kSay);
  EXPECT_THAT(session.history(), IsEmpty());
  EXPECT_EQ(session.system(), "Be brief.");
  EXPECT_EQ(session.Enter("/retry").kind, Kind::kFail);
}

TEST(ChatSessionTest, SystemReplacesOrRemovesTheSystemPrompt) {
  ChatSession session;
  session.Enter("/system  Speak French. ");
  EXPECT_EQ(session.system(), "Speak French.");
  session.Enter("/system");
  EXPECT_EQ(session.system(), "");
}

TEST(ChatSessionTest, SettingsTravelUntilTheyAreTakenBack) {
  ChatSession session;
  for (const char* line : {"/set temperature 0.5", "/set top_k 40", "/set seed 7",
                           "/set max_tokens 16", "/set stop END", "/set min_p 0.1"}) {
    EXPECT_EQ(session.Enter(line).kind, Kind::kSay) << line;
  }
  v1::GenerateRequest request = session.Request();
  EXPECT_EQ(request.sampling().temperature(), 0.5f);
  EXPECT_EQ(request.sampling().top_k(), 40);
  EXPECT_EQ(request.sampling().seed(), 7u);
  EXPECT_EQ(request.max_tokens(), 16);
  EXPECT_THAT(request.stop(), ElementsAre("END"));
  EXPECT_THAT(session.Enter("/set").text, HasSubstr("top_k = 40\n"));
  session.Enter("/set temperature");
  session.Enter("/set stop");
  request = session.Request();
  EXPECT_FALSE(request.sampling().has_temperature());
  EXPECT_THAT(request.stop(), IsEmpty());
  EXPECT_TRUE(request.sampling().has_min_p());
}

TEST(ChatSessionTest, AWrongSettingChangesNothingAndIsNamed) {
  ChatSession session;
  session.Enter("/set top_k 40");
  for (const char* line : {"/set top_k many", "/set top_k 4x", "/set seed -1",
                           "/set temperature warm", "/set top_k 99999999999"}) {
    EXPECT_EQ(session.Enter(line).kind, Kind::kFail) << line;
  }
  EXPECT_THAT(session.Enter("/set top_q 1").text, HasSubstr("/set top_q: there is no"));
  EXPECT_EQ(session.Request().sampling().top_k(), 40);
}

TEST(ChatSessionTest, UnknownCommandsAreRefusedAndTwoSlashesAreAMessage) {
  ChatSession session;
  EXPECT_THAT(session.Enter("/fly").text, HasSubstr("/fly: there is no such command"));
  EXPECT_EQ(session.Enter("/save").kind, Kind::kFail);
  EXPECT_EQ(session.Enter("/quit").kind, Kind::kQuit);
  EXPECT_EQ(session.Enter("//etc is a folder").kind, Kind::kAsk);
  EXPECT_THAT(Sent(session), ElementsAre("user: /etc is a folder"));
  for (const char* name :
       {"/reset", "/system", "/set", "/show", "/retry", "/save", "/load", "/quit"}) {
    EXPECT_THAT(session.Enter("/help").text, HasSubstr(name));
  }
}

TEST(ChatSessionTest, SaveAndLoadGiveTheSameConversation) {
  ChatSession session("Be \"brief\".");
  Exchange(session, "Grüße\n世界", "\x1b[2J \\");
  EXPECT_EQ(session.Enter("/save a file.json").text, "a file.json");
  ChatSession other;
  ASSERT_TRUE(other.FromJson(session.ToJson()).ok());
  EXPECT_EQ(other.system(), session.system());
  EXPECT_EQ(other.history(), session.history());
  EXPECT_EQ(other.Enter("/retry").kind, Kind::kAsk);
  EXPECT_THAT(Sent(other), ElementsAre("system: Be \"brief\".", "user: Grüße\n世界"));
}

TEST(ChatSessionTest, AWrongFileIsRefusedByTheFieldAndChangesNothing) {
  ChatSession session;
  Exchange(session, "one", "1");
  for (const auto& [text, field] : std::vector<std::pair<const char*, const char*>>{
           {"not json", ""},
           {"[]", ""},
           {R"({"messages": 3})", "messages"},
           {R"({"messages": [], "more": 1})", "more"},
           {R"({"messages": [3]})", "messages[0]"},
           {R"({"messages": [{"role": "robot", "content": "x"}]})", "messages[0].role"},
           {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
           {R"({"messages": [{"role": "user", "content": "x"},
                             {"role": "system", "content": "y"}]})",
            "messages[1].role"}}) {
    const Status status = session.FromJson(text);
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.field(), field) << text;
  }
  EXPECT_THAT(session.history(),
              ElementsAre(Message{"user", "one"}, Message{"assistant", "1"}));
}

TEST(ChatSessionTest, ALoadedQuestionWithoutAnAnswerCanBeRetried) {
  ChatSession session;
  ASSERT_TRUE(
      session.FromJson(R"({"messages": [{"role": "user", "content": "q"}]})").ok());
  EXPECT_THAT(session.history(), IsEmpty());
  ASSERT_EQ(session.Enter("/retry").kind, Kind::kAsk);
  EXPECT_THAT(Sent(session), ElementsAre("user: q"));
}

TEST(ChatSessionTest, ShowPrintsTheConversation) {
  ChatSession session("S");
  EXPECT_THAT(ChatSession().Enter("/show").text, HasSubstr("Nothing"));
  Exchange(session, "q", "a");
  EXPECT_EQ(session.Enter("/show").text, "[system]\nS\n[user]\nq\n[assistant]\na\n");
}

}  // namespace
}  // namespace renga
