// What a request may ask of its answer, as it reaches the device and comes back: bias,
// penalties, min_tokens, log-probabilities of answer and prompt, echo, and no answer.

#include "tests/engine/engine_fixture.h"

namespace renga {
namespace {

using testing::Each;
using testing::ElementsAreArray;
using testing::IsEmpty;

bool operator==(const TopLogprob& a, const TopLogprob& b) {
  return a.token == b.token && a.logprob == b.logprob;
}

class AnswerFieldsTest : public EngineTest {
 protected:
  // [i] is what the device says of tokens[i], i from `first`.
  void ExpectLogprobs(const std::vector<TokenLogprob>& heard,
                      const std::vector<TokenId>& tokens, size_t first, int32_t top) {
    ASSERT_EQ(heard.size(), tokens.size() - first);
    for (size_t i = first; i < tokens.size(); ++i) {
      const TokenLogprob& one = heard[i - first];
      const std::span<const TokenId> history(tokens.data(), i);
      EXPECT_EQ(one.token, tokens[i]) << i;
      EXPECT_EQ(one.logprob, backend_.ExpectedLogprob(history, tokens[i])) << i;
      const std::vector<TopLogprob> expected = backend_.ExpectedTop(history, top);
      ASSERT_EQ(one.top.size(), expected.size());
      for (size_t k = 0; k < expected.size(); ++k) {
        EXPECT_TRUE(one.top[k] == expected[k]) << i << ", " << k;
      }
    }
  }
};

// ---- Fields that change the draw.

TEST_F(AnswerFieldsTest, EndTokensCannotBeDrawnBeforeMinTokens) {
  Build({.scheduler = {}, .pages = 16});
  const std::vector<TokenId> prompt = PromptOf(5, 1);
  const std::vector<TokenId> free = backend_.ExpectedAnswer(prompt, 10);
  EngineRequest request = h().Request(prompt, 10);
  request.end_tokens = {free[0]};
  request.stop_tokens = {free[3]};
  request.min_tokens = 6;
  const std::vector<TokenId> banned = {free[0], free[3]};
  CollectingSink& sink = h().Submit(std::move(request));
  h().RunToEnd();
  const std::vector<TokenId> expected =
      backend_.ExpectedAnswer(prompt, 10, SampleSpec{.banned = banned}, 6);
  EXPECT_GE(sink.tokens().size(), 6u);
  for (size_t i = 0; i < sink.tokens().size(); ++i) {
    EXPECT_EQ(sink.tokens()[i], expected[i]);
  }
}

TEST_F(AnswerFieldsTest, BiasAndPenaltiesHoldThroughSlicesPreemptionAndForks) {
  const std::vector<LogitBias> bias = {{.token = 7, .bias = -100.0f}};
  Build({.scheduler = {.max_sequences = 8, .prefill_slice_tokens = 20}, .pages = 4});
  std::vector<CollectingSink*> sinks;
  SampleSpec how{.temperature = 1.0f,
                 .repetition_penalty = 1.25f,
                 .presence_penalty = 0.5f,
                 .frequency_penalty = -0.5f,
                 .logit_bias = bias,
                 .seed = kSeed};
  for (int i = 0; i < 3; ++i) {
    EngineRequest request = Drawing(PromptOf(90, i), 80, 2);
    request.sampling.repetition_penalty = how.repetition_penalty;
    request.sampling.presence_penalty = how.presence_penalty;
    request.sampling.frequency_penalty = how.frequency_penalty;
    request.sampling.logit_bias = bias;
    sinks.push_back(&h().Submit(std::move(request)));
  }
  h().RunToEnd();
  EXPECT_GT(h().Metric("renga_preemptions_total"), 0);
  for (int i = 0; i < 3; ++i) {
    for (uint32_t choice = 0; choice < 2; ++choice) {
      how.choice = choice;
      EXPECT_THAT(sinks[static_cast<size_t>(i)]->tokens(static_cast<int32_t>(choice)),
                  ElementsAreArray(backend_.ExpectedAnswer(PromptOf(90, i), 80, how)));
    }
  }
}

TEST_F(AnswerFieldsTest, AForcedTokenIsEveryTokenAndNoNeighbours) {
  Build({.scheduler = {}, .pages = 16});
  EngineRequest request = h().Request(PromptOf(5, 1), 8);
  request.sampling.logit_bias = {{.token = 123, .bias = 100.0f}};
  CollectingSink& forced = h().Submit(std::move(request));
  CollectingSink& other = h().Submit(PromptOf(5, 1), 8);
  h().RunToEnd();
  EXPECT_EQ(forced.tokens().size(), 8u);
  EXPECT_THAT(forced.tokens(), Each(123));
  ExpectAnswer(other, PromptOf(5, 1), 8);
}

TEST_F(AnswerFieldsTest, AnAnswerWithoutAnEndReachesTheContextsEndAtItsLastPosition) {
  Build({.scheduler = {}, .pages = 16}, 128);
  EngineRequest request = h().Request(PromptOf(100, 1), 500);
  const TokenId end = backend_.ExpectedAnswer(PromptOf(100, 1), 1)[0];
  request.end_tokens = {end};
  request.sampling.logit_bias = {{.token = end, .bias = -100.0f}};
  CollectingSink& sink = h().Submit(std::move(request));
  h().RunToEnd();
  EXPECT_EQ(sink.tokens().size(), 28u);
  EXPECT_EQ(sink.completion().finish_reason, FinishReason::kLength);
  EXPECT_EQ(sink.completion().stop_cause, StopCause::kContext);
}

TEST_F(AnswerFieldsTest, WhatIsOutOfRangeIsRefusedByNameAndTheNeighbourIsServed) {
  Build({.scheduler = {}, .pages = 16});
  const auto bad = [this](const std::function<void(EngineRequest&)>& spoil) {
    EngineRequest request = h().Request(PromptOf(5, 1), 4);
    spoil(request);
    return &h().Submit(std::move(request));
  };
  CollectingSink* bias = bad(
      [](EngineRequest& r) { r.sampling.logit_bias = {{.token = 1000, .bias = 1.0f}}; });
  CollectingSink* stop = bad([](EngineRequest& r) { r.stop_tokens = {-1}; });
  CollectingSink* logprobs = bad([](EngineRequest& r) { r.logprobs = 21; });
  CollectingSink* min = bad([](EngineRequest& r) { r.min_tokens = 5; });
  CollectingSink& good = h().Submit(PromptOf(5, 2), 4);
  h().RunToEnd();
  EXPECT_EQ(bias->completion().status.field(), "logit_bias");
  EXPECT_EQ(stop->completion().status.field(), "stop_token_ids");
  EXPECT_EQ(logprobs->completion().status.field(), "logprobs");
  EXPECT_EQ(min->completion().status.field(), "min_tokens");
  ExpectAnswer(good, PromptOf(5, 2), 4);
}

// ---- Log-probabilities of the answer.

TEST_F(AnswerFieldsTest, EveryTokenOfEveryChoiceHasItsOwnLogprobs) {
  Build({.scheduler = {}, .pages = 16});
  EngineRequest request = Drawing(PromptOf(70, 1), 9, 3);
  request.logprobs = 5;
  CollectingSink& sink = h().Submit(std::move(request));
  EngineRequest chosen_only = h().Request(PromptOf(30, 2), 9);
  chosen_only.logprobs = 0;
  CollectingSink& plain = h().Submit(std::move(chosen_only));
  CollectingSink& without = h().Submit(PromptOf(30, 3), 9);
  h().RunToEnd();
  for (int32_t choice = 0; choice < 3; ++choice) {
    std::vector<TokenId> all = PromptOf(70, 1);
    all.insert(all.end(), sink.tokens(choice).begin(), sink.tokens(choice).end());
    ExpectLogprobs(sink.logprobs(choice), all, 70, 5);
  }
  std::vector<TokenId> all = PromptOf(30, 2);
  all.insert(all.end(), plain.tokens().begin(), plain.tokens().end());
  ExpectLogprobs(plain.logprobs(), all, 30, 0);
  EXPECT_THAT(without.logprobs(), IsEmpty());
}

// ---- Log-probabilities of the prompt.

TEST_F(AnswerFieldsTest, APromptOfPTokensHasPMinusOneScoresHoweverItIsCut) {
  for (const int64_t length : {1, 2, 64, 65, 200}) {
    for (const int32_t slice : {1, 7, 64, 512}) {
      Build({.scheduler = {.policy = "continuous",
                           .max_sequences = 4,
                           .prefill_slice_tokens = slice,
                           .max_step_tokens = std::max(4, slice)},
             .pages = 16});
      CollectingSink& beside = h().Submit(PromptOf(3, 9), 30);
      EngineRequest request = h().Request(PromptOf(length, 1), 3);
      request.prompt_logprobs = 2;
      CollectingSink& sink = h().Submit(std::move(request));
      h().RunToEnd();
      ExpectLogprobs(sink.prompt_logprobs(), PromptOf(length, 1), 1, 2);
      ExpectAnswer(sink, PromptOf(length, 1), 3);
      ExpectAnswer(beside, PromptOf(3, 9), 30);
    }
  }
}

TEST_F(AnswerFieldsTest, ScoresReadNothingFromTheCacheButLeaveTheirPages) {
  Build({.scheduler = {.policy = "serial"}, .pages = 16});
  h().Submit(PromptOf(100, 1), 3);
  EngineRequest request = h().Request(PromptOf(100, 1), 3);
  request.prompt_logprobs = 1;
  CollectingSink& scored = h().Submit(std::move(request));
  EngineRequest fresh = h().Request(PromptOf(100, 2), 3);
  fresh.prompt_logprobs = 1;
  h().Submit(std::move(fresh));
  CollectingSink& after = h().Submit(PromptOf(100, 2), 3);
  h().RunToEnd();
  EXPECT_EQ(scored.completion().usage.cached_tokens, 0);
  ExpectLogprobs(scored.prompt_logprobs(), PromptOf(100, 1), 1, 1);
  EXPECT_EQ(after.completion().usage.cached_tokens, 99);
}

TEST_F(AnswerFieldsTest, APreemptionInTheMiddleOfTheScoresLosesNone) {
  Build({.scheduler = {.policy = "continuous",
                       .max_sequences = 8,
                       .prefill_slice_tokens = 2,
                       .max_step_tokens = 20},
         .pages = 7});
  CollectingSink& older = h().Submit(PromptOf(120, 1), 150);  // Takes the pages.
  CollectingSink* scored = nullptr;
  InStep(70, [&] {
    EngineRequest request = h().Request(PromptOf(190, 2), 5);
    request.prompt_logprobs = 3;
    scored = &h().Submit(std::move(request));
    h().queue.Close();
  });
  h().engine.Run();
  h().ExpectAllEnded();
  EXPECT_GT(h().Metric("renga_preemptions_total"), 0);
  ExpectAnswer(older, PromptOf(120, 1), 150);
  ExpectAnswer(*scored, PromptOf(190, 2), 5);
  ExpectLogprobs(scored->prompt_logprobs(), PromptOf(190, 2), 1, 3);
}

TEST_F(AnswerFieldsTest, APromptThatIsComputedAgainForItsAnswerIsNotScoredAgain) {
  Build({.scheduler = {.policy = "continuous"}, .pages = 4, .prefix_cache = false});
  CollectingSink& older = h().Submit(PromptOf(60, 1), 100);
  EngineRequest request = h().Request(PromptOf(60, 2), 100);
  request.prompt_logprobs = 0;
  CollectingSink& scored = h().Submit(std::move(request));
  h().RunToEnd();
  EXPECT_GT(h().Metric("renga_preemptions_total"), 0);
  ExpectAnswer(older, PromptOf(60, 1), 100);
  ExpectAnswer(scored, PromptOf(60, 2), 100);
  ExpectLogprobs(scored.prompt_logprobs(), PromptOf(60, 2), 1, 0);
  for (size_t i = 1; i < backend_.records.size(); ++i) {
    EXPECT_LE(backend_.records[i].logit_rows, 2) << "step " << i;
  }
}

// ---- Echo, and no answer at all.

TEST_F(AnswerFieldsTest, EchoGivesThePromptBackAndOnlyWhereItWasAskedFor) {
  Build({.scheduler = {}, .pages = 16});
  EngineRequest request = h().Request(PromptOf(70, 1), 3);
  request.echo = true;
  CollectingSink& echoed = h().Submit(std::move(request));
  CollectingSink& plain = h().Submit(PromptOf(70, 1), 3);
  h().RunToEnd();
  EXPECT_THAT(echoed.prompt(), ElementsAreArray(PromptOf(70, 1)));
  EXPECT_THAT(plain.prompt(), IsEmpty());
}

TEST_F(AnswerFieldsTest, WithoutTokensOfAnswerOnlyThePromptIsComputedAndScored) {
  for (const int32_t n : {1, 3}) {
    Build({.scheduler = {.max_sequences = 8, .max_step_tokens = 32}, .pages = 16});
    const int64_t before = Rows();
    EngineRequest request = Drawing(PromptOf(70, 1), 0, n);
    request.echo = true;
    request.prompt_logprobs = 1;
    CollectingSink& sink = h().Submit(std::move(request));
    h().RunToEnd();
    EXPECT_TRUE(sink.completion().status.ok());
    EXPECT_EQ(sink.starts(), 1);
    EXPECT_THAT(sink.prompt(), ElementsAreArray(PromptOf(70, 1)));
    ExpectLogprobs(sink.prompt_logprobs(), PromptOf(70, 1), 1, 1);
    EXPECT_THAT(sink.tokens(), IsEmpty());
    EXPECT_EQ(static_cast<int32_t>(sink.ends().size()), n);
    EXPECT_EQ(sink.completion().finish_reason, FinishReason::kLength);
    EXPECT_EQ(sink.completion().stop_cause, StopCause::kMaxTokens);
    EXPECT_EQ(sink.completion().usage.completion_tokens, 0);
    EXPECT_EQ(Rows() - before, 70);
    EXPECT_EQ(h().Metric("renga_generated_tokens_total"), 0);
  }
}

}  // namespace
}  // namespace renga
