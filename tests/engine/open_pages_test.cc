// Open pages (int8) under the engine: there are as many as sequences in a step, however
// many sequences are at rest beside them, and no answer shows who had to let one go.

#include <algorithm>

#include "tests/engine/engine_fixture.h"

namespace renga {
namespace {

class EngineOpenPagesTest : public EngineTest {
 protected:
  EngineOpenPagesTest() { dtype_ = KvDtype::kInt8; }

  double Wasted() { return h().Metric("renga_wasted_tokens_total"); }
};

TEST_F(EngineOpenPagesTest, APausedSequenceGivesItsOpenPageToOneThatComputes) {
  Build({.scheduler = {.policy = "continuous", .max_sequences = 1}, .pages = 16});
  // Pauses when 64 + 36 positions are computed and one token is known beyond.
  CollectingSink& slow = h().Submit(PromptOf(90, 1), 30, [](int64_t n, TokenId) {
    return n == 11 ? SinkVerdict::kPause : SinkVerdict::kContinue;
  });
  CollectingSink& other = h().Submit(PromptOf(20, 2), 10, [this](int64_t n, TokenId) {
    if (n == 9) h().queue.PostResume(RequestId{1});
    return SinkVerdict::kContinue;
  });
  h().RunToEnd();
  ExpectAnswer(slow, PromptOf(90, 1), 30);
  ExpectAnswer(other, PromptOf(20, 2), 10);
  EXPECT_EQ(Wasted(), 36);
  EXPECT_EQ(h().Metric("renga_preemptions_total"), 0);
  EXPECT_EQ(Rows(), 90 + 29 + 20 + 9 + 36);
}

TEST_F(EngineOpenPagesTest, OtherDtypesLoseNothingToAPause) {
  dtype_ = KvDtype::kF16;
  Build({.scheduler = {.policy = "continuous", .max_sequences = 1}, .pages = 16});
  h().Submit(PromptOf(90, 1), 30, [](int64_t n, TokenId) {
    return n == 11 ? SinkVerdict::kPause : SinkVerdict::kContinue;
  });
  h().Submit(PromptOf(20, 2), 10, [this](int64_t n, TokenId) {
    if (n == 9) h().queue.PostResume(RequestId{1});
    return SinkVerdict::kContinue;
  });
  h().RunToEnd();
  EXPECT_EQ(Wasted(), 0);
}

TEST_F(EngineOpenPagesTest, TwiceAsManyAsAStepTakesAreResumedAtOnceAndAllAnswer) {
  for (const bool reuse : {true, false}) {
    Build({.scheduler = {.policy = "continuous", .max_sequences = 2},
           .pages = 32,
           .prefix_cache = reuse});
    int paused = 0;
    std::vector<CollectingSink*> sinks;
    for (int i = 0; i < 4; ++i) {
      sinks.push_back(&h().Submit(PromptOf(60 + 3 * i, i), 40, [&](int64_t n, TokenId) {
        if (n != 5) return SinkVerdict::kContinue;
        if (++paused == 4) {
          for (uint64_t id = 1; id <= 4; ++id) h().queue.PostResume(RequestId{id});
        }
        return SinkVerdict::kPause;
      }));
    }
    h().RunToEnd();
    for (int i = 0; i < 4; ++i) {
      ExpectAnswer(*sinks[static_cast<size_t>(i)], PromptOf(60 + 3 * i, i), 40);
    }
    EXPECT_GT(Wasted(), 0);
  }
}

TEST_F(EngineOpenPagesTest, AScoredPromptThatRestsHasEachScoreOnce) {
  Build({.scheduler = {.policy = "continuous", .max_sequences = 1}, .pages = 16});
  const std::vector<TokenId> prompt = PromptOf(90, 1);
  EngineRequest scored = h().Request(prompt, 5);
  scored.prompt_logprobs = 1;
  CollectingSink& slow = h().Submit(std::move(scored), [](int64_t n, TokenId) {
    return n == 2 ? SinkVerdict::kPause : SinkVerdict::kContinue;
  });
  h().Submit(PromptOf(20, 2), 10, [this](int64_t n, TokenId) {
    if (n == 5) h().queue.PostResume(RequestId{1});
    return SinkVerdict::kContinue;
  });
  h().RunToEnd();
  ExpectAnswer(slow, prompt, 5);
  ASSERT_EQ(slow.prompt_logprobs().size(), prompt.size() - 1);
  for (size_t i = 1; i < prompt.size(); ++i) {
    EXPECT_EQ(slow.prompt_logprobs()[i - 1].logprob,
              backend_.ExpectedLogprob(std::span(prompt).first(i), prompt[i]));
  }
}

TEST_F(EngineOpenPagesTest, APrefixHitEndsWithAWholePage) {
  for (const int64_t length : {1, 63, 64, 65, 128, 129, 150}) {
    Build({.scheduler = {.policy = "serial"}, .pages = 16});
    const std::vector<TokenId> prompt = PromptOf(length, 1);
    const int64_t before = Rows();
    CollectingSink& cold = h().Submit(prompt, 5);
    CollectingSink& warm = h().Submit(prompt, 5);
    h().RunToEnd();
    ExpectAnswer(cold, prompt, 5);
    ExpectAnswer(warm, prompt, 5);
    const int64_t whole = (length - 1) / kPageTokens * kPageTokens;
    EXPECT_EQ(warm.completion().usage.cached_tokens, whole) << length;
    EXPECT_EQ(Rows() - before, 2 * (length + 4) - whole) << length;
  }
}

TEST_F(EngineOpenPagesTest, PromptsThatGrowByOneTokenShareAllButTheLastPage) {
  Build({.scheduler = {.policy = "serial"}, .pages = 40});
  std::vector<CollectingSink*> sinks;
  for (int64_t length = 1; length <= 200; ++length) {
    sinks.push_back(&h().Submit(PromptOf(length, 1), 3));
  }
  h().RunToEnd();
  for (int64_t length = 1; length <= 200; ++length) {
    ExpectAnswer(*sinks[static_cast<size_t>(length - 1)], PromptOf(length, 1), 3);
  }
}

}  // namespace
}  // namespace renga
