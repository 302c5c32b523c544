// Messages of the native API into OpenAI's JSON, without any server.

#include "gateway/openai_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/gateway/fake_inference.h"
#include "tests/gateway/http_client.h"

namespace renga {
namespace {

namespace json = boost::json;
using testing::ElementsAre;
using testing::StartsWith;

const AnswerHead kHead{.id = "id1", .created = 5, .fingerprint = ""};

v1::TokenLogprob Token(const std::string& bytes) {
  v1::TokenLogprob token;
  token.set_token(bytes);
  token.set_logprob(-1.0f);
  return token;
}

v1::GenerateResponse ChunkWithLogprobs(const std::string& text,
                                       const std::vector<std::string>& tokens,
                                       int32_t choice = 0) {
  v1::GenerateResponse event = ChunkEvent(text, choice);
  for (const std::string& token : tokens) {
    *event.mutable_chunk()->add_logprobs() = Token(token);
  }
  return event;
}

// The chunks of a stream, without [DONE].
std::vector<json::value> Play(StreamedAnswer& stream,
                              std::vector<v1::GenerateResponse> events) {
  std::string text;
  for (v1::GenerateResponse& event : events) text += stream.OnEvent(0, event);
  std::vector<json::value> chunks;
  for (const std::string& data : SseData(text)) chunks.push_back(json::parse(data));
  return chunks;
}

TEST(OpenAiAnswerTest, EachChoiceEndsOnceAndTheLastHasTheTimings) {
  StreamedAnswer stream({.chat = true, .stream = true, .n = 3}, kHead, 1);
  const auto chunks =
      Play(stream, {StartedEvent(), ChunkEvent("a", 0), ChunkEvent("b", 2),
                    ChoiceFinishedEvent(2, v1::FINISH_REASON_LENGTH),
                    ChoiceFinishedEvent(0, v1::FINISH_REASON_STOP), ChunkEvent("c", 1),
                    ChoiceFinishedEvent(1, v1::FINISH_REASON_STOP), FinishedEvent(3)});
  std::vector<int64_t> ends;
  std::vector<int> roles(3);
  for (const json::value& chunk : chunks) {
    const json::value& choice = chunk.at("choices").at(0);
    const int64_t index = choice.at("index").as_int64();
    if (choice.at("delta").as_object().contains("role"))
      ++roles[static_cast<size_t>(index)];
    if (!choice.at("finish_reason").is_null()) ends.push_back(index);
    EXPECT_EQ(chunk.as_object().contains("timings"), &chunk == &chunks.back());
  }
  EXPECT_THAT(ends, ElementsAre(2, 0, 1));
  EXPECT_THAT(roles, ElementsAre(1, 1, 1));
  EXPECT_TRUE(stream.complete());
}

TEST(OpenAiAnswerTest, LogprobsOfHeldBackTextComeWithTheNextTextOrTheEnd) {
  StreamedAnswer stream({.chat = true, .stream = true, .logprobs = true}, kHead, 1);
  const auto chunks = Play(stream, {StartedEvent(), ChunkWithLogprobs("", {"a"}),
                                    ChunkWithLogprobs("ab", {"b"}),
                                    ChunkWithLogprobs("", {"", "x"}), FinishedEvent(4)});
  ASSERT_EQ(chunks.size(), 3u);
  const auto entries = [&](size_t i) {
    return chunks[i].at("choices").at(0).at("logprobs").at("content").as_array().size();
  };
  EXPECT_TRUE(chunks[0].at("choices").at(0).at("logprobs").is_null());
  EXPECT_EQ(entries(1), 2u);
  EXPECT_EQ(entries(2), 2u);
}

TEST(OpenAiAnswerTest, AnEchoBeginsWithThePromptAndItsLogprobs) {
  const AnswerShape shape{.stream = true, .echo = true, .logprobs = true};
  v1::GenerateResponse started = StartedEvent();
  started.mutable_started()->set_prompt_text("To be");
  started.mutable_started()->add_prompt_token_ids(4);
  started.mutable_started()->add_prompt_token_ids(5);
  *started.mutable_started()->add_prompt_logprobs() = Token(" be");
  StreamedAnswer stream(shape, kHead, 1);
  const auto chunks =
      Play(stream, {started, ChunkWithLogprobs(" or", {" or"}), FinishedEvent(1)});
  ASSERT_EQ(chunks.size(), 3u);
  const json::value& first = chunks[0].at("choices").at(0);
  EXPECT_EQ(first.at("text"), "To be");
  EXPECT_EQ(first.at("logprobs").at("tokens"), (json::array{"To", " be"}));
  EXPECT_EQ(first.at("logprobs").at("text_offset"), (json::array{0, 2}));
  EXPECT_EQ(chunks[1].at("choices").at(0).at("logprobs").at("text_offset"),
            (json::array{5}));

  v1::GenerateUnaryResponse answer;
  *answer.mutable_started() = started.started();
  answer.set_text(" or");
  *answer.add_logprobs() = Token(" or");
  *answer.mutable_finished() = FinishedEvent(1).finished();
  WholeAnswer whole(shape, kHead, 1);
  EXPECT_TRUE(whole.Add(0, answer));
  const json::value choice = json::parse(whole.Body()).at("choices").at(0);
  EXPECT_EQ(choice.at("text"), "To be or");
  EXPECT_EQ(choice.at("logprobs").at("text_offset"), (json::array{0, 2, 5}));
}

TEST(OpenAiAnswerTest, PromptLogprobsAreAFieldOfTheFirstChoice) {
  v1::GenerateResponse started = StartedEvent();
  *started.mutable_started()->add_prompt_logprobs() = Token("b");
  StreamedAnswer stream({.chat = true, .stream = true, .prompt_logprobs = true, .n = 2},
                        kHead, 1);
  const auto chunks = Play(stream, {started});
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].at("choices").at(0).at("prompt_logprobs").as_array().size(), 2u);
  EXPECT_FALSE(chunks[1].at("choices").at(0).as_object().contains("prompt_logprobs"));
}

TEST(OpenAiAnswerTest, UsageAddsUpAndCountsEachPromptOnce) {
  const AnswerShape shape{.stream = true, .include_usage = true, .n = 2};
  StreamedAnswer stream(shape, kHead, 2);
  for (size_t prompt = 0; prompt < 2; ++prompt) {
    v1::GenerateResponse started = StartedEvent(10, 4);
    v1::GenerateResponse finished = FinishedEvent(6, 10, 4);
    stream.OnEvent(prompt, started);
    stream.OnEvent(prompt, finished);
  }
  EXPECT_TRUE(stream.complete());
  const std::vector<std::string> events = SseData(stream.End());
  ASSERT_EQ(events.size(), 2u);
  const json::value usage = json::parse(events[0]).at("usage");
  EXPECT_EQ(usage.at("prompt_tokens"), 20);
  EXPECT_EQ(usage.at("completion_tokens"), 12);
  EXPECT_EQ(usage.at("total_tokens"), 32);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 8);
}

TEST(OpenAiAnswerTest, ExactCausesOfTheEndAreTold) {
  v1::GenerateUnaryResponse answer;
  v1::Finished& finished = *answer.mutable_finished();
  finished.set_finish_reason(v1::FINISH_REASON_STOP);
  finished.set_stop_cause(v1::STOP_CAUSE_STOP_STRING);
  finished.set_stop_text("END");
  WholeAnswer whole({.chat = true}, kHead, 1);
  whole.Add(0, answer);
  const json::value body = json::parse(whole.Body());
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("choices").at(0).at("stop_cause"), "stop_string");
  EXPECT_EQ(body.at("choices").at(0).at("stop_text"), "END");
  EXPECT_TRUE(body.at("system_fingerprint").is_null());
}

TEST(OpenAiAnswerTest, AChoiceNumberOutOfRangeFromAServerIsHarmless) {
  StreamedAnswer stream({.chat = true, .stream = true}, kHead, 1);
  Play(stream, {StartedEvent(), ChunkEvent("x", 7), ChunkEvent("y", -1),
                v1::GenerateResponse(), FinishedEvent(1), FinishedEvent(1)});
}

// Random answers, cut at random places: the stream's pieces are the whole answer.
TEST(OpenAiAnswerTest, StreamsEqualWholeAnswersOverRandomCuts) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const auto n = static_cast<int32_t>(1 + random() % 3);
    const AnswerShape shape{
        .chat = round % 2 == 0, .stream = true, .logprobs = true, .n = n};
    StreamedAnswer stream(shape, kHead, 1);
    WholeAnswer whole(shape, kHead, 1);
    v1::GenerateUnaryResponse answer;
    std::vector<v1::GenerateResponse> events = {StartedEvent()};
    *answer.mutable_started() = events[0].started();
    for (int32_t c = 1; c < n; ++c) answer.add_more_choices()->set_choice(c);
    for (int piece = 0; piece < 12; ++piece) {
      const auto c = static_cast<int32_t>(random() % static_cast<unsigned>(n));
      const std::string text =
          random() % 3 == 0 ? "" : "é" + std::to_string(random() % 99);
      events.push_back(ChunkWithLogprobs(text, {text, "x"}, c));
      const v1::Chunk& chunk = events.back().chunk();
      (c == 0 ? *answer.mutable_text()
              : *answer.mutable_more_choices(c - 1)->mutable_text()) += text;
      (c == 0 ? answer.mutable_logprobs()
              : answer.mutable_more_choices(c - 1)->mutable_logprobs())
          ->MergeFrom(chunk.logprobs());
    }
    events.push_back(FinishedEvent(12));
    *answer.mutable_finished() = events.back().finished();
    whole.Add(0, answer);
    std::vector<std::string> texts(static_cast<size_t>(n));
    std::vector<json::array> logprobs(static_cast<size_t>(n));
    const auto append = [&](const json::value& choice, const char* holder) {
      const auto index = static_cast<size_t>(choice.at("index").as_int64());
      const json::value& text =
          shape.chat ? *[&] {
            static const json::value kEmpty = "";
            const json::value* found = choice.at(holder).as_object().if_contains("content");
            return found == nullptr ? &kEmpty : found;
          }()
                     : choice.at("text");
      texts[index] += text.as_string().c_str();
      if (choice.at("logprobs").is_null()) return;
      const json::value& list =
          choice.at("logprobs").at(shape.chat ? "content" : "text_offset");
      for (const json::value& entry : list.as_array()) logprobs[index].push_back(entry);
    };
    for (const json::value& chunk : Play(stream, events)) {
      append(chunk.at("choices").at(0), "delta");
    }
    const auto streamed_texts =
        std::exchange(texts, std::vector<std::string>(static_cast<size_t>(n)));
    const auto streamed_logprobs =
        std::exchange(logprobs, std::vector<json::array>(static_cast<size_t>(n)));
    const json::value body = json::parse(whole.Body());
    for (const json::value& choice : body.at("choices").as_array())
      append(choice, "message");
    ASSERT_EQ(streamed_texts, texts) << round;
    ASSERT_EQ(streamed_logprobs, logprobs) << round;
  }
}

}  // namespace
}  // namespace renga
