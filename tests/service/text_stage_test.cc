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
  int32_t choice = 0;
  std::vector<TokenLogprob> logprobs;
};

// Without a number: of all choices together.
class Recorder final : public TokenSink {
 public:
  void OnStart(const StartInfo& info) override {
    prompt_tokens = info.prompt_tokens;
    prompt_text = info.prompt_text;
  }
  SinkVerdict OnToken(const TokenChunk& chunk) override {
    EXPECT_TRUE(!chunk.text.empty() || !chunk.tokens.empty()) << "an empty chunk";
    EXPECT_FALSE(done) << "a chunk behind OnDone";
    EXPECT_EQ(EndOf(chunk.choice), nullptr) << "a chunk behind its choice's end";
    chunks.push_back({std::string(chunk.text),
                      {chunk.tokens.begin(), chunk.tokens.end()},
                      chunk.choice,
                      {chunk.logprobs.begin(), chunk.logprobs.end()}});
    if (verdicts.empty()) return SinkVerdict::kContinue;
    const SinkVerdict verdict = verdicts.front();
    verdicts.pop_front();
    return verdict;
  }
  void OnChoiceEnd(const ChoiceEnd& end) override {
    EXPECT_FALSE(done) << "an end behind OnDone";
    EXPECT_EQ(EndOf(end.choice), nullptr) << "an end twice";
    ends.push_back(end);
  }
  void OnDone(const Completion& completion) override {
    EXPECT_FALSE(done) << "OnDone twice";
    done = completion;
  }

  const ChoiceEnd* EndOf(int32_t choice) const {
    for (const ChoiceEnd& end : ends) {
      if (end.choice == choice) return &end;
    }
    return nullptr;
  }
  std::string text() const {
    std::string text;
    for (const Chunk& chunk : chunks) text += chunk.text;
    return text;
  }
  std::string TextOf(int32_t choice) const {
    std::string text;
    for (const Chunk& chunk : chunks) text += chunk.choice == choice ? chunk.text : "";
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
  std::string prompt_text;
  std::vector<Chunk> chunks;
  std::vector<ChoiceEnd> ends;
  std::optional<Completion> done;
};

Completion Ended(FinishReason reason, StopCause cause) {
  Completion completion;
  completion.finish_reason = reason;
  completion.stop_cause = cause;
  completion.usage.completion_tokens = 3;
  return completion;
}

ChoiceEnd EndedChoice(int32_t choice, FinishReason reason, StopCause cause) {
  return {.choice = choice,
          .finish_reason = reason,
          .stop_cause = cause,
          .completion_tokens = 3};
}

SinkVerdict Give(TokenSink& stage, TokenId id, int32_t choice = 0) {
  return stage.OnToken({.choice = choice, .tokens = {&id, 1}, .text = {}});
}

// Plays `pieces` one token each until the stage says kStop, then the ends as the engine
// does at max_tokens. Returns the number of tokens it took.
size_t Play(const std::vector<std::string>& pieces, TextStageOptions options,
            Recorder& recorder) {
  const PieceTokenizer tokenizer(pieces);
  TextStage stage(tokenizer, std::move(options), recorder);
  size_t played = 0;
  while (played < pieces.size()) {
    if (Give(stage, static_cast<TokenId>(played++)) == SinkVerdict::kStop) break;
  }
  stage.OnChoiceEnd(EndedChoice(0, FinishReason::kLength, StopCause::kMaxTokens));
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
    EXPECT_EQ(Play(pieces, {.stop = {stop}}, recorder), played);
    EXPECT_EQ(recorder.text(), text);
    EXPECT_EQ(recorder.tokens().size(), played);
    const bool stopped = stop != "answers";
    EXPECT_EQ(recorder.done->finish_reason,
              stopped ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_EQ(recorder.done->stop_cause,
              stopped ? StopCause::kStopString : StopCause::kMaxTokens);
    EXPECT_EQ(recorder.done->stop_text, stopped ? stop : "");
    ASSERT_EQ(recorder.ends.size(), 1u);
    EXPECT_EQ(recorder.ends[0].finish_reason, recorder.done->finish_reason);
    EXPECT_EQ(recorder.ends[0].stop_cause, recorder.done->stop_cause);
    EXPECT_EQ(recorder.ends[0].stop_text, recorder.done->stop_text);
    EXPECT_EQ(recorder.ends[0].completion_tokens, 3);
  }
}

TEST(TextStageTest, TheMatchThatStartsFirstWinsInAnyOrderOfTheList) {
  for (const auto& stops : std::vector<std::vector<std::string>>{
           {"cd", "bcde", "e"}, {"bcde", "e", "cd"}, {"e", "cd", "bcde"}}) {
    Recorder recorder;
    Play({"a", "bcdef"}, {.stop = stops}, recorder);
    EXPECT_EQ(recorder.text(), "a");
    EXPECT_EQ(recorder.done->stop_text, "bcde");
  }
}

TEST(TextStageTest, APrefixThatComesToNothingIsGivenBack) {
  Recorder recorder;
  EXPECT_EQ(Play({"xa", "a", "b", "aa", "bc", "d"}, {.stop = {"aabc"}}, recorder), 5u);
  EXPECT_EQ(recorder.text(), "xaab");
  EXPECT_THAT(recorder.texts(), ElementsAre("x", "aab", ""));
}

// Case B5.
TEST(TextStageTest, OnlyAProperPrefixOfAStopStringIsHeld) {
  Recorder recorder;
  Play({"one", " two", " thr", "ee"}, {.stop = {std::string(200, '#')}}, recorder);
  EXPECT_THAT(recorder.texts(), ElementsAre("one", " two", " thr", "ee"));
}

TEST(TextStageTest, HeldTextArrivesWhenTheAnswerEndsOtherwise) {
  Recorder recorder;
  Play({"one", " two", " end"}, {.stop = {"endQQQQ"}}, recorder);
  EXPECT_EQ(recorder.text(), "one two end");
  EXPECT_EQ(recorder.done->finish_reason, FinishReason::kLength);

  // Also when it fails.
  Recorder failed;
  const PieceTokenizer tokenizer({"en"});
  TextStage stage(tokenizer, {.stop = {"end"}}, failed);
  Give(stage, 0);
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
  Play({"hi", ""}, {.stop = {"hix"}}, recorder);
  EXPECT_EQ(recorder.text(), "hi");
  EXPECT_THAT(recorder.tokens(), ElementsAre(0, 1));

  Recorder alone;
  Play({"hi", ""}, {}, alone);
  EXPECT_THAT(alone.texts(), ElementsAre("hi", ""));
}

TEST(TextStageTest, AStopStringThatMaxTokensCompletesIsAStop) {
  Recorder recorder;
  EXPECT_EQ(Play({"a", "END"}, {.stop = {"END"}}, recorder), 2u);
  EXPECT_EQ(recorder.done->finish_reason, FinishReason::kStop);
  EXPECT_EQ(recorder.done->usage.completion_tokens, 3);
}

TEST(TextStageTest, EmptyStopStringsNeverMatch) {
  Recorder recorder;
  Play({"a", "b"}, {.stop = {"", "zz"}}, recorder);
  EXPECT_EQ(recorder.text(), "ab");
}

TEST(TextStageTest, VerdictsOfTheInnerSinkPassThrough) {
  const PieceTokenizer tokenizer({"a", "E", "x"});
  Recorder recorder;
  recorder.verdicts = {SinkVerdict::kPause, SinkVerdict::kPause, SinkVerdict::kStop};
  TextStage stage(tokenizer, {.stop = {"EN"}}, recorder);
  EXPECT_EQ(Give(stage, 0), SinkVerdict::kPause);
  EXPECT_EQ(Give(stage, 1), SinkVerdict::kContinue);  // Held: nothing was passed on.
  EXPECT_EQ(Give(stage, 2), SinkVerdict::kPause);     // The held text and the new one.
  EXPECT_EQ(Give(stage, 0), SinkVerdict::kStop);
  stage.OnDone(Ended(FinishReason::kStop, StopCause::kNone));
  EXPECT_THAT(recorder.texts(), ElementsAre("a", "Ex", "a"));
  EXPECT_EQ(recorder.done->stop_cause, StopCause::kNone);
}

TEST(TextStageTest, NothingFollowsAStopOfTheInnerSink) {
  const PieceTokenizer tokenizer({"aE"});
  Recorder recorder;
  recorder.verdicts = {SinkVerdict::kStop};
  TextStage stage(tokenizer, {.stop = {"EN"}}, recorder);
  EXPECT_EQ(Give(stage, 0), SinkVerdict::kStop);
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
  TextStage stage(tokenizer, {.stop = {"EN"}}, recorder);
  std::vector<TokenId> ids(TextStage::kMaxHeldTokens + 2, 1);
  ids[0] = 0;
  for (const TokenId id : ids) Give(stage, id);
  ASSERT_EQ(recorder.chunks.size(), 1u);
  EXPECT_EQ(recorder.chunks[0].tokens.size(), TextStage::kMaxHeldTokens + 1);
  stage.OnDone(Ended(FinishReason::kLength, StopCause::kMaxTokens));
  EXPECT_EQ(recorder.text(), "E");
  EXPECT_EQ(recorder.tokens().size(), ids.size());
}

// ---- Choices.

TEST(TextStageTest, EveryChoiceHasATextOfItsOwn) {
  // Case B1 with two answers whose characters come at the same time.
  const PieceTokenizer tokenizer({"\xE2", "\x82", "\xAC", "\xC3", "\xA9", "a"});
  Recorder recorder;
  TextStage stage(tokenizer, {.n = 2}, recorder);
  for (const auto& [choice, id] : std::vector<std::pair<int32_t, TokenId>>{
           {0, 0}, {1, 3}, {0, 1}, {1, 4}, {0, 2}, {1, 5}}) {
    EXPECT_EQ(Give(stage, id, choice), SinkVerdict::kContinue);
  }
  EXPECT_THAT(recorder.texts(), ElementsAre("\u00E9", "\u20AC", "a"));
  EXPECT_EQ(recorder.TextOf(0), "\u20AC");
  EXPECT_EQ(recorder.TextOf(1), "\u00E9a");
  EXPECT_THAT(recorder.chunks[0].tokens, ElementsAre(3, 4));
  EXPECT_THAT(recorder.chunks[1].tokens, ElementsAre(0, 1, 2));
}

// Case B4 with two answers.
TEST(TextStageTest, AStopStringEndsItsOwnChoiceAlone) {
  const PieceTokenizer tokenizer({"aEN", "D", "b"});
  for (const int32_t stopped : {0, 1}) {
    SCOPED_TRACE(stopped);
    const int32_t other = 1 - stopped;
    Recorder recorder;
    TextStage stage(tokenizer, {.stop = {"END"}, .n = 2}, recorder);
    EXPECT_EQ(Give(stage, 0, stopped), SinkVerdict::kContinue);
    EXPECT_EQ(Give(stage, 1, other), SinkVerdict::kContinue);  // No "END" of two texts.
    EXPECT_EQ(Give(stage, 1, stopped), SinkVerdict::kStop);
    stage.OnChoiceEnd(EndedChoice(stopped, FinishReason::kStop, StopCause::kNone));
    EXPECT_EQ(Give(stage, 2, other), SinkVerdict::kContinue);
    stage.OnChoiceEnd(EndedChoice(other, FinishReason::kLength, StopCause::kMaxTokens));
    const bool first = stopped == 0;
    stage.OnDone(first ? Ended(FinishReason::kStop, StopCause::kNone)
                       : Ended(FinishReason::kLength, StopCause::kMaxTokens));

    EXPECT_EQ(recorder.TextOf(stopped), "a");
    EXPECT_EQ(recorder.TextOf(other), "Db");
    ASSERT_EQ(recorder.ends.size(), 2u);
    EXPECT_EQ(recorder.EndOf(stopped)->finish_reason, FinishReason::kStop);
    EXPECT_EQ(recorder.EndOf(stopped)->stop_cause, StopCause::kStopString);
    EXPECT_EQ(recorder.EndOf(stopped)->stop_text, "END");
    EXPECT_EQ(recorder.EndOf(other)->finish_reason, FinishReason::kLength);
    EXPECT_EQ(recorder.EndOf(other)->stop_cause, StopCause::kMaxTokens);
    EXPECT_EQ(recorder.EndOf(other)->stop_text, "");
    EXPECT_EQ(recorder.done->stop_cause,
              first ? StopCause::kStopString : StopCause::kMaxTokens);
    EXPECT_EQ(recorder.done->stop_text, first ? "END" : "");
  }
}

// Case B5 with two answers: what was held comes before the choice's own end.
TEST(TextStageTest, AChoiceGivesUpWhatItHeldWhenItEnds) {
  const PieceTokenizer tokenizer({"xE", "y\xE2"});
  Recorder recorder;
  TextStage stage(tokenizer, {.stop = {"END"}, .n = 2}, recorder);
  Give(stage, 0, 0);
  Give(stage, 1, 1);
  EXPECT_EQ(recorder.TextOf(0), "x");
  stage.OnChoiceEnd(EndedChoice(0, FinishReason::kStop, StopCause::kEndToken));
  EXPECT_EQ(recorder.TextOf(0), "xE");
  EXPECT_EQ(recorder.TextOf(1), "y");
  stage.OnChoiceEnd(EndedChoice(1, FinishReason::kLength, StopCause::kContext));
  EXPECT_EQ(recorder.TextOf(1), "y\uFFFD");
  stage.OnDone(Ended(FinishReason::kStop, StopCause::kEndToken));
  EXPECT_EQ(recorder.EndOf(0)->stop_cause, StopCause::kEndToken);
  EXPECT_EQ(recorder.EndOf(1)->stop_cause, StopCause::kContext);
  EXPECT_EQ(recorder.chunks.size(), 4u);
}

TEST(TextStageTest, ACancelGivesUpWhatTheChoicesThatStillRanHeld) {
  const PieceTokenizer tokenizer({"E", "EN", "aEND"});
  Recorder recorder;
  TextStage stage(tokenizer, {.stop = {"END"}, .n = 3}, recorder);
  Give(stage, 0, 0);
  Give(stage, 1, 1);
  EXPECT_EQ(Give(stage, 2, 2), SinkVerdict::kStop);
  stage.OnChoiceEnd(EndedChoice(2, FinishReason::kStop, StopCause::kNone));
  Completion completion = Ended(FinishReason::kCancelled, StopCause::kNone);
  completion.status = Cancelled("by the client");
  stage.OnDone(completion);
  EXPECT_EQ(recorder.TextOf(0), "E");
  EXPECT_EQ(recorder.TextOf(1), "EN");
  EXPECT_EQ(recorder.TextOf(2), "a");
  EXPECT_EQ(recorder.ends.size(), 1u);
  EXPECT_EQ(recorder.done->finish_reason, FinishReason::kCancelled);
}

TEST(TextStageTest, AStopOfTheInnerSinkIsForItsChoiceAlone) {
  const PieceTokenizer tokenizer({"a", "b"});
  Recorder recorder;
  recorder.verdicts = {SinkVerdict::kStop};
  TextStage stage(tokenizer, {.n = 2}, recorder);
  EXPECT_EQ(Give(stage, 0, 1), SinkVerdict::kStop);
  EXPECT_EQ(Give(stage, 1, 0), SinkVerdict::kContinue);
  EXPECT_EQ(Give(stage, 1, 1), SinkVerdict::kStop);
  EXPECT_EQ(recorder.TextOf(0), "b");
  EXPECT_EQ(recorder.TextOf(1), "a");
}

// ---- min_tokens.

TEST(TextStageTest, AStopStringOfTheFirstMinTokensDoesNotCount) {
  Recorder recorder;
  EXPECT_EQ(
      Play({"a", "END", "b", "END", "c"}, {.stop = {"END"}, .min_tokens = 2}, recorder),
      4u);
  EXPECT_EQ(recorder.text(), "aENDb");
  EXPECT_THAT(recorder.tokens(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(recorder.done->stop_text, "END");

  Recorder late;
  EXPECT_EQ(Play({"a", "END", "b"}, {.stop = {"END"}, .min_tokens = 3}, late), 3u);
  EXPECT_EQ(late.text(), "aENDb");
  EXPECT_EQ(late.done->finish_reason, FinishReason::kLength);
}

TEST(TextStageTest, AStopStringThatMinTokensOnlyBeginCountsWhenItIsComplete) {
  Recorder recorder;
  EXPECT_EQ(Play({"a", "E", "N", "D"}, {.stop = {"END"}, .min_tokens = 3}, recorder), 4u);
  EXPECT_EQ(recorder.text(), "a");
  EXPECT_EQ(recorder.done->stop_text, "END");
}

TEST(TextStageTest, MinTokensCountEachChoiceForItself) {
  const PieceTokenizer tokenizer({"a", "END"});
  Recorder recorder;
  TextStage stage(tokenizer, {.stop = {"END"}, .n = 2, .min_tokens = 1}, recorder);
  EXPECT_EQ(Give(stage, 0, 0), SinkVerdict::kContinue);
  EXPECT_EQ(Give(stage, 1, 1), SinkVerdict::kContinue);
  EXPECT_EQ(Give(stage, 1, 0), SinkVerdict::kStop);
  EXPECT_EQ(recorder.TextOf(1), "END");
}

// ---- Log-probabilities and the prompt.

// Case C9: one entry for each token, whatever is held, and their bytes are the text's.
TEST(TextStageTest, EveryTokenHasItsOwnLogprobWhateverIsHeld) {
  const std::vector<std::string> pieces = {"a", "\xE2", "\x82", "\xAC", "E",
                                           "N", "x",    "",     "E"};
  const PieceTokenizer tokenizer(pieces);
  Recorder recorder;
  TextStage stage(tokenizer, {.stop = {"END"}, .n = 2}, recorder);
  for (TokenId id = 0; id < static_cast<TokenId>(pieces.size()); ++id) {
    const TokenLogprob logprob{.token = id,
                               .logprob = -static_cast<float>(id),
                               .top = {{.token = id + 100, .logprob = 0.0f}}};
    stage.OnToken(
        {.choice = 1, .tokens = {&id, 1}, .text = {}, .logprobs = {&logprob, 1}});
  }
  stage.OnChoiceEnd(EndedChoice(1, FinishReason::kLength, StopCause::kMaxTokens));
  std::string bytes;
  TokenId next = 0;
  for (const Chunk& chunk : recorder.chunks) {
    ASSERT_EQ(chunk.logprobs.size(), chunk.tokens.size());
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      EXPECT_EQ(chunk.tokens[i], next);
      EXPECT_EQ(chunk.logprobs[i].token, next);
      EXPECT_EQ(chunk.logprobs[i].logprob, -static_cast<float>(next));
      ASSERT_EQ(chunk.logprobs[i].top.size(), 1u);
      EXPECT_EQ(chunk.logprobs[i].top[0].token, next + 100);
      bytes += tokenizer.Bytes(next++);
    }
  }
  EXPECT_EQ(next, static_cast<TokenId>(pieces.size()));
  EXPECT_EQ(bytes, recorder.text());
}

TEST(TextStageTest, AStopStringsTokensKeepTheirLogprobs) {
  const PieceTokenizer tokenizer({"aE", "ND"});
  Recorder recorder;
  TextStage stage(tokenizer, {.stop = {"END"}}, recorder);
  for (TokenId id = 0; id < 2; ++id) {
    const TokenLogprob logprob{.token = id, .logprob = -1.0f};
    stage.OnToken({.tokens = {&id, 1}, .text = {}, .logprobs = {&logprob, 1}});
  }
  EXPECT_EQ(recorder.text(), "a");
  ASSERT_EQ(recorder.chunks.size(), 2u);
  EXPECT_EQ(recorder.chunks[1].logprobs.size(), 1u);
  EXPECT_EQ(recorder.chunks[1].logprobs[0].token, 1);
}

TEST(TextStageTest, LogprobsNobodyAskedForAreNotThere) {
  Recorder recorder;
  Play({"a", "\xE2", "\x82", "\xAC"}, {}, recorder);
  for (const Chunk& chunk : recorder.chunks) EXPECT_THAT(chunk.logprobs, IsEmpty());
}

TEST(TextStageTest, StartCarriesThePromptsText) {
  const PieceTokenizer tokenizer({"a"});
  Recorder recorder;
  TextStage stage(tokenizer, {.prompt_text = "The prompt"}, recorder);
  stage.OnStart({.prompt_tokens = 9});
  EXPECT_EQ(recorder.prompt_tokens, 9);
  EXPECT_EQ(recorder.prompt_text, "The prompt");
}

// What the whole must be: after each token, the earliest match in all the text so far.
struct Expected {
  std::string text;
  std::string stop;
  size_t played = 0;
};

// A match ends behind the first `min_tokens` pieces.
Expected Naive(const std::vector<std::string>& pieces,
               const std::vector<std::string>& stops, size_t min_tokens) {
  Expected expected;
  size_t before = 0;  // Bytes of the first `min_tokens` pieces.
  for (const std::string& piece : pieces) {
    expected.text += piece;
    if (++expected.played <= min_tokens) {
      before = expected.text.size();
      continue;
    }
    size_t best = std::string::npos;
    for (const std::string& stop : stops) {
      size_t at = expected.text.find(stop);
      while (at != std::string::npos && at + stop.size() <= before) {
        at = expected.text.find(stop, at + 1);
      }
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
    const size_t min_tokens = rng() % 2 == 0 ? 0 : rng() % 6;
    const Expected expected = Naive(pieces, stops, min_tokens);
    Recorder recorder;
    ASSERT_EQ(
        Play(pieces, {.stop = stops, .min_tokens = static_cast<int64_t>(min_tokens)},
             recorder),
        expected.played);
    ASSERT_EQ(recorder.text(), expected.text);
    ASSERT_EQ(recorder.done->stop_text, expected.stop);
    ASSERT_EQ(recorder.tokens().size(), expected.played);
    stopped += expected.stop.empty() ? 0 : 1;
  }
  EXPECT_GT(stopped, 1000);
}

}  // namespace
}  // namespace renga
