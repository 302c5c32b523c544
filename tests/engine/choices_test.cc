// Several answers to one prompt: computed once, drawn apart, each with the tokens it
// would have had alone, and ended apart or together.

#include "tests/engine/engine_fixture.h"

namespace renga {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

class ChoicesTest : public EngineTest, public testing::WithParamInterface<KvDtype> {
 protected:
  ChoicesTest() { dtype_ = GetParam(); }

  void ExpectChoices(const CollectingSink& sink, const std::vector<TokenId>& prompt,
                     int64_t tokens, int32_t n) {
    EXPECT_TRUE(sink.completion().status.ok()) << sink.completion().status.ToString();
    for (int32_t i = 0; i < n; ++i) {
      EXPECT_THAT(sink.tokens(i), ElementsAreArray(Drawn(prompt, tokens, i)))
          << "choice " << i;
    }
    EXPECT_EQ(static_cast<int32_t>(sink.ends().size()), n);
    EXPECT_EQ(sink.completion().usage.completion_tokens, n * tokens);
    EXPECT_EQ(sink.completion().usage.prompt_tokens, static_cast<int64_t>(prompt.size()));
  }
};

TEST_P(ChoicesTest, ThePromptIsComputedOnceAndEachChoiceAnswersAsIfAlone) {
  for (const int64_t length : {1, 63, 64, 65, 128, 150}) {
    Build({.scheduler = {}, .pages = 32});
    const int64_t before = Rows();
    const std::vector<TokenId> prompt = PromptOf(length, 1);
    CollectingSink& sink = h().Submit(Drawing(prompt, 70, 4));
    h().RunToEnd();
    ExpectChoices(sink, prompt, 70, 4);
    EXPECT_EQ(sink.starts(), 1);
    EXPECT_EQ(Rows() - before, length + 4 * 69) << length;
    EXPECT_EQ(h().Metric("renga_prompt_tokens_total"), static_cast<double>(length));
    EXPECT_EQ(h().Metric("renga_generated_tokens_total"), 280);
  }
}

TEST_P(ChoicesTest, TheFirstChoiceIsTheAnswerOfARequestForOne) {
  Build({.scheduler = {}, .pages = 32});
  CollectingSink& one = h().Submit(Drawing(PromptOf(20, 1), 10, 1));
  CollectingSink& three = h().Submit(Drawing(PromptOf(20, 1), 10, 3));
  h().RunToEnd();
  EXPECT_THAT(three.tokens(0), ElementsAreArray(one.tokens(0)));
  EXPECT_NE(three.tokens(0), three.tokens(1));
  EXPECT_NE(three.tokens(1), three.tokens(2));
}

TEST_P(ChoicesTest, EachChoiceEndsByItselfAndTheRequestWithTheLast) {
  Build({.scheduler = {}, .pages = 32});
  const std::vector<TokenId> prompt = PromptOf(20, 1);
  EngineRequest request = Drawing(prompt, 12, 3);
  request.end_tokens = {Drawn(prompt, 12, 0)[0]};  // Choice 0 ends with its first token.
  CollectingSink& sink =
      h().SubmitChoices(std::move(request), [](int32_t choice, int64_t n, TokenId) {
        return choice == 2 && n == 5 ? SinkVerdict::kStop : SinkVerdict::kContinue;
      });
  h().RunToEnd();
  EXPECT_THAT(sink.tokens(0), IsEmpty());
  EXPECT_EQ(sink.tokens(1).size(), 12u);
  EXPECT_EQ(sink.tokens(2).size(), 5u);
  ASSERT_EQ(sink.ends().size(), 3u);
  EXPECT_EQ(sink.ends()[0].choice, 0);
  EXPECT_EQ(sink.ends()[0].stop_cause, StopCause::kEndToken);
  EXPECT_EQ(sink.ends()[0].completion_tokens, 1);
  EXPECT_EQ(sink.ends()[1].choice, 2);
  EXPECT_EQ(sink.ends()[1].finish_reason, FinishReason::kStop);
  EXPECT_EQ(sink.ends()[2].stop_cause, StopCause::kMaxTokens);
  EXPECT_EQ(sink.completion().stop_cause, StopCause::kEndToken) << "that of choice 0";
  EXPECT_EQ(sink.completion().usage.completion_tokens, 1 + 12 + 5);
}

TEST_P(ChoicesTest, APauseOfOneChoiceIsAPauseOfTheRequest) {
  Build({.scheduler = {}, .pages = 32});
  const std::vector<TokenId> prompt = PromptOf(20, 1);
  CollectingSink& slow =
      h().SubmitChoices(Drawing(prompt, 9, 3), [](int32_t choice, int64_t n, TokenId) {
        return choice == 1 && n == 4 ? SinkVerdict::kPause : SinkVerdict::kContinue;
      });
  CollectingSink& other = h().Submit(PromptOf(10, 2), 30);
  std::vector<size_t> while_paused;
  InStep(20, [&] {
    for (int32_t i = 0; i < 3; ++i) while_paused.push_back(slow.tokens(i).size());
    h().queue.PostResume(RequestId{1});
  });
  h().RunToEnd();
  EXPECT_THAT(while_paused, testing::ElementsAre(4, 4, 4));
  ExpectChoices(slow, prompt, 9, 3);
  ExpectAnswer(other, PromptOf(10, 2), 30);
}

TEST_P(ChoicesTest, ACancelEndsAllChoicesWithinOneStepAtEveryStage) {
  for (const int64_t step : {2, 4, 5, 9}) {  // Prefill, the fork, right after, decode.
    Build({.scheduler = {.max_sequences = 16, .max_step_tokens = 32}, .pages = 32});
    const int64_t before = backend_.steps();
    CollectingSink& gone = h().Submit(Drawing(PromptOf(120, 1), 100, 3));
    InStep(before + step, [&] { h().queue.PostCancel(RequestId{1}); });
    h().RunToEnd();
    EXPECT_EQ(backend_.steps() - before, step);
    EXPECT_EQ(gone.completion().status.code(), StatusCode::kCancelled);
    EXPECT_THAT(gone.ends(), IsEmpty());
    EXPECT_EQ(gone.completion().usage.completion_tokens,
              3 * std::max<int64_t>(0, step - 3));
  }
}

TEST_P(ChoicesTest, ChoicesThatDoNotFitTogetherArePreemptedAndChangeNoAnswer) {
  for (const bool reuse : {true, false}) {
    Build({.scheduler = {}, .pages = 8, .prefix_cache = reuse});
    const std::vector<TokenId> prompt = PromptOf(100, 1);
    CollectingSink& sink = h().Submit(Drawing(prompt, 150, 4));
    CollectingSink& other = h().Submit(PromptOf(50, 2), 100);
    h().RunToEnd();
    ExpectChoices(sink, prompt, 150, 4);
    ExpectAnswer(other, PromptOf(50, 2), 100);
    EXPECT_GT(h().Metric("renga_preemptions_total"), 0);
  }
}

TEST_P(ChoicesTest, WhereOnlyOneChoiceFitsTheyRunOneAfterTheOther) {
  for (const bool reuse : {true, false}) {
    Build({.scheduler = {}, .pages = 3, .prefix_cache = reuse});
    const std::vector<TokenId> prompt = PromptOf(130, 1);
    CollectingSink& sink = h().Submit(Drawing(prompt, 40, 5));
    h().RunToEnd();
    ExpectChoices(sink, prompt, 40, 5);
  }
}

TEST_P(ChoicesTest, APauseWhileOtherChoicesWaitForPagesHoldsUpNobody) {
  Build({.scheduler = {.policy = "serial"}, .pages = 3, .prefix_cache = false});
  const std::vector<TokenId> prompt = PromptOf(100, 1);
  CollectingSink& slow =
      h().SubmitChoices(Drawing(prompt, 60, 3), [&](int32_t choice, int64_t n, TokenId) {
        // By then the pool is too small for all of them.
        return choice == 0 && n == 40 ? SinkVerdict::kPause : SinkVerdict::kContinue;
      });
  CollectingSink& other = h().Submit(PromptOf(10, 2), 5, [&](int64_t n, TokenId) {
    if (n == 5) h().queue.PostResume(RequestId{1});
    return SinkVerdict::kContinue;
  });
  h().RunToEnd();
  EXPECT_GT(h().Metric("renga_preemptions_total"), 0);
  ExpectChoices(slow, prompt, 60, 3);
  ExpectAnswer(other, PromptOf(10, 2), 5);
}

TEST_P(ChoicesTest, MoreThanCanRunAtATimeAreRefusedByName) {
  Build({.scheduler = {.max_sequences = 4}, .pages = 16});
  CollectingSink& many = h().Submit(Drawing(PromptOf(5, 1), 5, 5));
  CollectingSink& none = h().Submit(Drawing(PromptOf(5, 1), 5, 0));
  CollectingSink& fits = h().Submit(Drawing(PromptOf(5, 1), 5, 4));
  h().RunToEnd();
  EXPECT_EQ(many.completion().status.field(), "n");
  EXPECT_THAT(many.completion().status.message(), HasSubstr("4"));
  EXPECT_EQ(none.completion().status.field(), "n");
  ExpectChoices(fits, PromptOf(5, 1), 5, 4);
}

TEST_P(ChoicesTest, ARequestHoldsThePlacesOfAllItsChoicesFromTheStart) {
  Build({.scheduler = {.max_sequences = 4, .max_step_tokens = 16}, .pages = 32});
  CollectingSink& three = h().Submit(Drawing(PromptOf(60, 1), 20, 3));
  CollectingSink& two = h().Submit(Drawing(PromptOf(60, 2), 20, 2));
  CollectingSink& one = h().Submit(Drawing(PromptOf(60, 3), 20, 1));
  h().RunToEnd();
  ExpectChoices(three, PromptOf(60, 1), 20, 3);
  ExpectChoices(two, PromptOf(60, 2), 20, 2);
  ExpectChoices(one, PromptOf(60, 3), 20, 1);
  for (const FakeBackend::StepRecord& record : backend_.records) {
    EXPECT_LE(record.sequence_rows.size(), 4u);
  }
}

TEST_P(ChoicesTest, LogitsThatAreNotFiniteFailAllChoices) {
  Build({.scheduler = {}, .pages = 32});
  CollectingSink& bad = h().Submit(Drawing({FakeBackend::kPoisonToken, 5, 6}, 5, 3));
  CollectingSink& good = h().Submit(PromptOf(10, 2), 5);
  h().RunToEnd();
  EXPECT_EQ(bad.completion().status.code(), StatusCode::kInternal);
  EXPECT_EQ(bad.starts(), 0);
  EXPECT_THAT(bad.ends(), IsEmpty());
  ExpectAnswer(good, PromptOf(10, 2), 5);
}

TEST_P(ChoicesTest, AFailedStepFailsTheRequestOnceWhateverItsChoices) {
  Build({.scheduler = {}, .pages = 32});
  CollectingSink& hit = h().Submit(Drawing(PromptOf(10, 1), 50, 4));
  backend_.on_step = [](int64_t step) {
    return step == 6 ? Internal("lost a launch") : OkStatus();
  };
  h().RunToEnd();
  EXPECT_EQ(hit.completion().status.code(), StatusCode::kInternal);
  EXPECT_EQ(hit.completion().usage.completion_tokens, 4 * 5);
}

TEST_P(ChoicesTest, AForkWhoseCopyFailsFailsItsRequestBeforeItHasBegun) {
  Build({.scheduler = {.policy = "serial"}, .pages = 32});
  CollectingSink& hit = h().Submit(Drawing(PromptOf(70, 1), 5, 4));
  CollectingSink& next = h().Submit(Drawing(PromptOf(70, 2), 5, 4));
  copying_.fail_copy = 2;
  h().RunToEnd();
  EXPECT_EQ(hit.completion().status.code(), StatusCode::kInternal);
  EXPECT_EQ(hit.starts(), 0);
  ExpectChoices(next, PromptOf(70, 2), 5, 4);
}

TEST_P(ChoicesTest, FirstTokensThatExceedTheDevicesLimitAreDrawnOneStepLater) {
  constexpr int32_t kPlaces = 70;  // As many specs as the device takes in one step.
  Build({.scheduler = {.policy = "continuous",
                       .max_sequences = kPlaces,
                       .max_batch = kPlaces},
         .pages = 400});
  for (int i = 0; i < kPlaces - 1; ++i) {
    h().Submit(PromptOf(5, i), 10, [](int64_t n, TokenId) {
      return n == 1 ? SinkVerdict::kPause : SinkVerdict::kContinue;
    });
  }
  CollectingSink* many = nullptr;
  backend_.on_step = [&](int64_t step) {
    if (step == 1) many = &h().Submit(Drawing(PromptOf(600, 1), 6, kPlaces));
    if (step != 2) return OkStatus();  // Its first slice: the others stand still.
    for (int i = 0; i < kPlaces - 1; ++i) {
      h().queue.PostResume(RequestId{static_cast<uint64_t>(i) + 1});
    }
    h().queue.Close();
    return OkStatus();
  };
  h().engine.Run();
  h().ExpectAllEnded();
  ExpectChoices(*many, PromptOf(600, 1), 6, kPlaces);
  EXPECT_EQ(backend_.records[2].logit_rows, kPlaces);
}

INSTANTIATE_TEST_SUITE_P(Pages, ChoicesTest,
                         testing::Values(KvDtype::kF16, KvDtype::kInt8),
                         [](const testing::TestParamInfo<KvDtype>& tested) {
                           return std::string(KvDtypeName(tested.param));
                         });

}  // namespace
}  // namespace renga
