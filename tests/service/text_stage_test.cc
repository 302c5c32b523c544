#include "service/text_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace renga {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Token i stands for pieces[i]; an empty piece is a control token.
class PieceTokenizer final : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  StatusOr<std::vector<TokenId>> Encode(const MarkedText&) const override {
    return Unimplemented("not needed");
  }
  std::string_view Bytes(TokenId id) const override {
    return pieces_.at(static_cast<size_t>(id));
  }
  bool IsControl(TokenId id) const override { return Bytes(id).empty(); }
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  TokenId bos_token_id() const override { return -1; }
  bool add_bos_token() const override { return false; }
  std::span<const TokenId> end_token_ids() const override { return {}; }

 private:
  const std::vector<std::string> pieces_;
};

struct Chunk {
  std::string text;
  std::vector<TokenId> tokens;
};

class Recorder final : public TokenSink {
 public:
  void OnStart(const StartInfo& info) override { prompt_tokens = info.prompt_tokens; }
  SinkVerdict OnToken(const TokenChunk& chunk) override {
    EXPECT_TRUE(!chunk.text.empty() || !chunk.tokens.empty()) << "an empty chunk";
    EXPECT_FALSE(done) << "a chunk behind OnDone";
    chunks.push_back(
        {std::string(chunk.text), {chunk.tokens.begin(), chunk.tokens.end()}});
    if (verdicts.empty()) return SinkVerdict::kContinue;
    const SinkVerdict verdict = verdicts.front();
    verdicts.pop_front();
    return verdict;
  }
  void OnDone(const Completion& completion) override {
    EXPECT_FALSE(done) << "OnDone twice";
    done = completion;
  }

  std::string text() const {
    std::string text;
    for (const Chunk& chunk : chunks) text += chunk.text;
    return text;
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> texts;
    for (const Chunk& chunk : chunks) texts.push_back(chunk.text);
    return texts;
  }
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> ids;
    for (const Chunk& c : chunks) ids.insert(ids.end(), c.tokens.begin(), c.tokens.end());
    return ids;
  }

  std::deque<SinkVerdict> verdicts;
  int64_t prompt_tokens = 0;
  std::vector<Chunk> chunks;
  std::optional<Completion> done;
};

Completion Ended(FinishReason reason, StopCause cause) {
  Completion completion;
  completion.finish_reason = reason;
  completion.stop_cause = cause;
  completion.usage.completion_tokens = 3;
  return completion;
}

// Plays `pieces` one token each until the stage says kStop, then OnDone as the engine
// does at max_tokens. Returns the number of tokens it took.
size_t Play(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
            Recorder& recorder) {
  const PieceTokenizer tokenizer(pieces);
  TextStage stage(tokenizer, stops, recorder);
  size_t played = 0;
  while (played < pieces.size()) {
    const auto id = static_cast<TokenId>(played++);
    if (stage.OnToken({.choice = 0, .tokens = {&id, 1}, .text = {}}) ==
        SinkVerdict::kStop)
      break;
  }
  stage.OnDone(Ended(FinishReason::kLength, StopCause::kMaxTokens));
  return played;
}

TEST(TextStageTest, WithoutStopStringsEveryTokenGoesOnAtOnce) {
  Recorder recorder;
  EXPECT_EQ(Play({"Hel", "lo", " wor", "ld"}, {}, recorder), 4u);
  EXPECT_THAT(recorder.texts(), ElementsAre("Hel", "lo", " wor", "ld"));
  EXPECT_THAT(recorder.tokens(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(recorder.done->finish_reason, FinishReason::kLength);
  EXPECT_EQ(recorder.done->usage.completion_tokens, 3);
}

// Case B1: the ids of a held character travel with it.
TEST(TextStageTest, ACharacterOverTokensIsOneChunkWithAllItsIds) {
  Recorder recorder;
  Play({"a", "\xE2", "\x82", "\xAC", "b"}, {}, recorder);
  EXPECT_THAT(recorder.texts(), ElementsAre("a", "\u20AC", "b"));
  EXPECT_THAT(recorder.chunks[1].tokens, ElementsAre(1, 2, 3));
}

TEST(TextStageTest, AnUnfinishedCharacterComesBeforeTheEnd) {
  Recorder recorder;
  Play({"a", "\xE2", "\x82"}, {}, recorder);
  EXPECT_THAT(recorder.texts(), ElementsAre("a", "\uFFFD"));
  EXPECT_THAT(recorder.tokens(), ElementsAre(0, 1, 2));
}

// Case B4.
TEST(TextStageTest, AStopStringOverTokensEndsTheAnswerBeforeIt) {
  const std::vector<std::string> pieces = {"The an", "swer", " is", " 4", "2."};
  for (const auto& [stop, text, played] :
       std::vector<std::tuple<std::string, std::string, size_t>>{
           {"answer", "The ", 2},
           {"nswer is", "The a", 3},
           {"an", "The ", 1},
           {"wer is 42", "The ans", 5},
           {"2", "The answer is 4", 5},
           {"The", "", 1},
           {"answers", "The answer is 42.", 5}}) {
    SCOPED_TRACE(stop);
    Recorder recorder;
    EXPECT_EQ(Play(pieces, {stop}, recorder), played);
    EXPECT_EQ(recorder.text(), text);
    EXPECT_EQ(recorder.tokens().size(), played);
    const bool stopped = stop != "answers";
    EXPECT_EQ(recorder.done->finish_reason,
              stopped ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_EQ(recorder.done->stop_cause,
              stopped ? StopCause::kStopString : StopCause::kMaxTokens);
    EXPECT_EQ(recorder.done->stop_text, stopped ? stop : "");
  }
}

TEST(TextStageTest, TheMatchThatStartsFirstWinsInAnyOrderOfTheList) {
  for (const auto& stops : std::vector<std::vector<std::string>>{
           {"cd", "bcde", "e"}, {"bcde", "e", "cd"}, {"e", "cd", "bcde"}}) {
    Recorder recorder;
    Play({"a", "bcdef"}, stops, recorder);
    EXPECT_EQ(recorder.text(), "a");
    EXPECT_EQ(recorder.done->stop_text, "bcde");
  }
}

TEST(TextStageTest, APrefixThatComesToNothingIsGivenBack) {
  Recorder recorder;
  EXPECT_EQ(Play({"xa", "a", "b", "aa", "bc", "d"}, {"aabc"}, recorder), 5u);
  EXPECT_EQ(recorder.text(), "xaab");
  EXPECT_THAT(recorder.texts(), ElementsAre("x", "aab", ""));
}

// Case B5.
TEST(TextStageTest, OnlyAProperPrefixOfAStopStringIsHeld) {
  Recorder recorder;
  Play({"one", " two", " thr", "ee"}, {std::string(200, '#')}, recorder);
  EXPECT_THAT(recorder.texts(), ElementsAre("one", " two", " thr", "ee"));
}

TEST(TextStageTest, HeldTextArrivesWhenTheAnswerEndsOtherwise) {
  Recorder recorder;
  Play({"one", " two", " end"}, {"endQQQQ"}, recorder);
  EXPECT_EQ(recorder.text(), "one two end");
  EXPECT_EQ(recorder.done->finish_reason, FinishReason::kLength);

  // Also when it fails.
  Recorder failed;
  const PieceTokenizer tokenizer({"en"});
  TextStage stage(tokenizer, {"end"}, failed);
  const TokenId id = 0;
  stage.OnToken({.choice = 0, .tokens = {&id, 1}, .text = {}});
  EXPECT_THAT(failed.chunks, IsEmpty());
  Completion completion = Ended(FinishReason::kCancelled, StopCause::kNone);
  completion.status = Cancelled("by the client");
  stage.OnDone(completion);
  EXPECT_EQ(failed.text(), "en");
  EXPECT_EQ(failed.done->status.code(), StatusCode::kCancelled);
}

// Case B6: an end token has an id and no text.
TEST(TextStageTest, AControlTokenHasNoText) {
  Recorder recorder;
  Play({"hi", ""}, {"hix"}, recorder);
  EXPECT_EQ(recorder.text(), "hi");
  EXPECT_THAT(recorder.tokens(), ElementsAre(0, 1));

  Recorder alone;
  Play({"hi", ""}, {}, alone);
  EXPECT_THAT(alone.texts(), ElementsAre("hi", ""));
}

TEST(TextStageTest, AStopStringThatMaxTokensCompletesIsAStop) {
  Recorder recorder;
  EXPECT_EQ(Play({"a", "END"}, {"END"}, recorder), 2u);
  EXPECT_EQ(recorder.done->finish_reason, FinishReason::kStop);
  EXPECT_EQ(recorder.done->usage.completion_tokens, 3);
}

TEST(TextStageTest, EmptyStopStringsNeverMatch) {
  Recorder recorder;
  Play({"a", "b"}, {"", "zz"}, recorder);
  EXPECT_EQ(recorder.text(), "ab");
}

TEST(TextStageTest, VerdictsOfTheInnerSinkPassThrough) {
  const PieceTokenizer tokenizer({"a", "E", "x"});
  Recorder recorder;
  recorder.verdicts = {SinkVerdict::kPause, SinkVerdict::kPause, SinkVerdict::kStop};
  TextStage stage(tokenizer, {"EN"}, recorder);
  const std::vector<TokenId> ids = {0, 1, 2};
  const auto feed = [&](size_t i) {
    return stage.OnToken({.choice = 0, .tokens = {&ids[i], 1}, .text = {}});
  };
  EXPECT_EQ(feed(0), SinkVerdict::kPause);
  EXPECT_EQ(feed(1), SinkVerdict::kContinue);  // Held: nothing was passed on.
  EXPECT_EQ(feed(2), SinkVerdict::kPause);     // The held text and the new one.
  EXPECT_EQ(feed(0), SinkVerdict::kStop);
  stage.OnDone(Ended(FinishReason::kStop, StopCause::kNone));
  EXPECT_THAT(recorder.texts(), ElementsAre("a", "Ex", "a"));
  EXPECT_EQ(recorder.done->stop_cause, StopCause::kNone);
}

TEST(TextStageTest, NothingFollowsAStopOfTheInnerSink) {
  const PieceTokenizer tokenizer({"aE"});
  Recorder recorder;
  recorder.verdicts = {SinkVerdict::kStop};
  TextStage stage(tokenizer, {"EN"}, recorder);
  const TokenId id = 0;
  EXPECT_EQ(stage.OnToken({.choice = 0, .tokens = {&id, 1}, .text = {}}),
            SinkVerdict::kStop);
  stage.OnDone(Ended(FinishReason::kStop, StopCause::kNone));
  EXPECT_THAT(recorder.texts(), ElementsAre("a"));
}

TEST(TextStageTest, StartPassesThroughAndAnOwnedSinkIsUsed) {
  struct Forward final : TokenSink {
    explicit Forward(Recorder& recorder) : to(recorder) {}
    void OnStart(const StartInfo& info) override { to.OnStart(info); }
    SinkVerdict OnToken(const TokenChunk& chunk) override { return to.OnToken(chunk); }
    void OnDone(const Completion& completion) override { to.OnDone(completion); }
    Recorder& to;
  };
  const PieceTokenizer tokenizer({"a"});
  Recorder recorder;
  TextStage stage(tokenizer, {}, std::make_unique<Forward>(recorder));
  stage.OnStart({.prompt_tokens = 9});
  stage.OnDone(Ended(FinishReason::kLength, StopCause::kMaxTokens));
  EXPECT_EQ(recorder.prompt_tokens, 9);
  EXPECT_TRUE(recorder.done);
}

// Control tokens for ever behind held text: their ids cannot pile up.
TEST(TextStageTest, IdsWithoutTextDoNotPileUp) {
  const PieceTokenizer tokenizer({"E", ""});
  Recorder recorder;
  TextStage stage(tokenizer, {"EN"}, recorder);
  std::vector<TokenId> ids(TextStage::kMaxHeldTokens + 2, 1);
  ids[0] = 0;
  for (const TokenId& id : ids)
    stage.OnToken({.choice = 0, .tokens = {&id, 1}, .text = {}});
  ASSERT_EQ(recorder.chunks.size(), 1u);
  EXPECT_EQ(recorder.chunks[0].tokens.size(), TextStage::kMaxHeldTokens + 1);
  stage.OnDone(Ended(FinishReason::kLength, StopCause::kMaxTokens));
  EXPECT_EQ(recorder.text(), "E");
  EXPECT_EQ(recorder.tokens().size(), ids.size());
}

// What the whole must be: after each token, the earliest match in all the text so far.
struct Expected {
  std::string text;
  std::string stop;
  size_t played = 0;
};

Expected Naive(const std::vector<std::string>& pieces,
               const std::vector<std::string>& stops) {
  Expected expected;
  for (const std::string& piece : pieces) {
    expected.text += piece;
    ++expected.played;
    size_t best = std::string::npos;
    for (const std::string& stop : stops) {
      const size_t at = expected.text.find(stop);
      if (at == std::string::npos) continue;
      if (at > best || (at == best && stop.size() >= expected.stop.size())) continue;
      best = at;
      expected.stop = stop;
    }
    if (best == std::string::npos) continue;
    expected.text.resize(best);
    return expected;
  }
  return expected;
}

TEST(TextStageTest, RandomAnswersAndStopsAgreeWithThePlainDefinition) {
  std::mt19937 rng(20240609);
  const auto word = [&](size_t longest) {
    const std::string letters[] = {"a", "b", "ab", "\u20AC", "ba"};
    std::string out;
    for (size_t n = 1 + rng() % longest; n > 0; --n) out += letters[rng() % 5];
    return out;
  };
  int stopped = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> pieces, stops;
    for (size_t n = 1 + rng() % 12; n > 0; --n) pieces.push_back(word(3));
    for (size_t n = rng() % 4; n > 0; --n) stops.push_back(word(4));
    const Expected expected = Naive(pieces, stops);
    Recorder recorder;
    ASSERT_EQ(Play(pieces, stops, recorder), expected.played);
    ASSERT_EQ(recorder.text(), expected.text);
    ASSERT_EQ(recorder.done->stop_text, expected.stop);
    ASSERT_EQ(recorder.tokens().size(), expected.played);
    stopped += expected.stop.empty() ? 0 : 1;
  }
  EXPECT_GT(stopped, 1000);
}

}  // namespace
}  // namespace renga
