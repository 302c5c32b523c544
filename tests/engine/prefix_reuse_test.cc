// Prefix reuse in the engine: a prompt whose beginning is known is computed from there
// on, with the answer of a cold run, and nothing is shared that must not be.

#include "tests/engine/engine_fixture.h"

namespace renga {
namespace {

using testing::HasSubstr;
using testing::Le;

class PrefixReuseTest : public EngineTest {
 protected:
  // One after the other, in order of arrival.
  void BuildSerial(int64_t pages, int32_t step_tokens = 512, bool reuse = true) {
    Build({.scheduler = {.policy = "serial",
                         .max_sequences = 16,
                         .max_step_tokens = step_tokens},
           .pages = pages,
           .prefix_cache = reuse});
  }
  CollectingSink& SubmitSalted(std::vector<TokenId> prompt, const char* salt) {
    EngineRequest request = h().Request(std::move(prompt), 4);
    request.cache_salt = salt;
    return h().Submit(std::move(request));
  }
  static int64_t Cached(const CollectingSink& sink) {
    EXPECT_EQ(sink.start().cached_tokens, sink.completion().usage.cached_tokens);
    EXPECT_EQ(sink.start().kv_source, sink.start().cached_tokens > 0
                                          ? KvSource::kPrefixCache
                                          : KvSource::kComputed);
    return sink.completion().usage.cached_tokens;
  }
};

TEST_F(PrefixReuseTest, ARepeatedPromptComputesItsLastTokenAloneAtEveryPageBorder) {
  for (const int64_t length : {1, 63, 64, 65, 128, 129}) {
    BuildSerial(32);
    const std::vector<TokenId> prompt = PromptOf(length, 1);
    std::vector<CollectingSink*> runs;
    for (int i = 0; i < 3; ++i) runs.push_back(&h().Submit(prompt, 5));
    const int64_t rows_before = Rows();
    h().RunToEnd();
    for (int i = 0; i < 3; ++i) {
      ExpectAnswer(*runs[static_cast<size_t>(i)], prompt, 5);
      EXPECT_EQ(Cached(*runs[static_cast<size_t>(i)]), i == 0 ? 0 : length - 1) << length;
    }
    EXPECT_EQ(Rows() - rows_before, (length + 4) + 5 + 5);
  }
}

TEST_F(PrefixReuseTest, AStrictPrefixAndAnExtensionUseWhatMatches) {
  BuildSerial(32);
  const std::vector<TokenId> whole = PromptOf(129, 1);
  std::vector<TokenId> part(whole.begin(), whole.begin() + 100);
  std::vector<TokenId> extended = whole;
  for (int i = 0; i < 50; ++i) extended.push_back(250 + i);
  std::vector<TokenId> other = whole;
  other[70] = 5;
  h().Submit(whole, 3);
  CollectingSink& shorter = h().Submit(part, 3);
  CollectingSink& longer = h().Submit(extended, 3);
  CollectingSink& edited = h().Submit(other, 3);
  h().RunToEnd();
  ExpectAnswer(shorter, part, 3);
  ExpectAnswer(longer, extended, 3);
  ExpectAnswer(edited, other, 3);
  EXPECT_EQ(Cached(shorter), 99);
  EXPECT_EQ(Cached(longer), 129);
  EXPECT_EQ(Cached(edited), 70);
}

TEST_F(PrefixReuseTest, AnAnswerIsReusedByThePromptThatContainsIt) {
  BuildSerial(32);
  std::vector<TokenId> turn = PromptOf(90, 1);
  h().Submit(turn, 40);
  const std::vector<TokenId> answer = backend_.ExpectedAnswer(turn, 40);
  turn.insert(turn.end(), answer.begin(), answer.end());
  turn.push_back(3);
  CollectingSink& next = h().Submit(turn, 4);
  h().RunToEnd();
  ExpectAnswer(next, turn, 4);
  EXPECT_EQ(Cached(next), 129);  // Nobody has computed the answer's last token.
}

TEST_F(PrefixReuseTest, ARunningRequestAlreadySharesItsWholePages) {
  Build({.scheduler = {.policy = "continuous"}, .pages = 32});
  const std::vector<TokenId> prompt = PromptOf(150, 1);
  CollectingSink& first = h().Submit(prompt, 30);
  CollectingSink* second = nullptr;
  InStep(5, [&] {
    second = &h().Submit(prompt, 30);
    h().queue.Close();
  });
  h().engine.Run();
  h().ExpectAllEnded();
  ExpectAnswer(first, prompt, 30);
  ExpectAnswer(*second, prompt, 30);
  EXPECT_EQ(Cached(*second), 128);
}

TEST_F(PrefixReuseTest, APromptThatWaitsForItsTurnProfitsFromOneBeforeIt) {
  Build({.scheduler = {.max_sequences = 8, .max_step_tokens = 64}, .pages = 32});
  const std::vector<TokenId> prompt = PromptOf(200, 1);
  CollectingSink& first = h().Submit(prompt, 3);
  CollectingSink& second = h().Submit(prompt, 3);  // Admitted together.
  h().RunToEnd();
  ExpectAnswer(first, prompt, 3);
  ExpectAnswer(second, prompt, 3);
  EXPECT_EQ(Cached(first), 0);
  EXPECT_EQ(Cached(second), 192);
}

TEST_F(PrefixReuseTest, NamespacesNeverShare) {
  BuildSerial(64);
  const std::vector<TokenId> prompt = PromptOf(100, 1);
  const char* salts[] = {"a", "b", "", "ab", "a", "b", "", "ab"};
  std::vector<CollectingSink*> sinks;
  for (const char* salt : salts) sinks.push_back(&SubmitSalted(prompt, salt));
  h().RunToEnd();
  for (size_t i = 0; i < sinks.size(); ++i) {
    ExpectAnswer(*sinks[i], prompt, 4);
    EXPECT_EQ(Cached(*sinks[i]), i < 4 ? 0 : 99) << i;
  }
}

TEST_F(PrefixReuseTest, WhoDoesNotUseTheCacheNeitherReadsNorLeaves) {
  BuildSerial(64);
  std::vector<CollectingSink*> sinks;
  for (const bool use : {true, false, true}) {
    EngineRequest request = h().Request(PromptOf(100, 1), 4);
    request.use_prefix_cache = use;
    sinks.push_back(&h().Submit(std::move(request)));
  }
  EngineRequest alone = h().Request(PromptOf(100, 2), 4);
  alone.use_prefix_cache = false;
  h().Submit(std::move(alone));
  CollectingSink& after = h().Submit(PromptOf(100, 2), 4);
  h().RunToEnd();
  EXPECT_EQ(Cached(*sinks[1]), 0);
  EXPECT_EQ(Cached(*sinks[2]), 99);
  EXPECT_EQ(Cached(after), 0);
  ExpectAnswer(after, PromptOf(100, 2), 4);
}

TEST_F(PrefixReuseTest, SwitchedOffNothingStays) {
  BuildSerial(16, 512, false);
  h().Submit(PromptOf(100, 1), 4);
  CollectingSink& again = h().Submit(PromptOf(100, 1), 4);
  h().RunToEnd();
  EXPECT_EQ(Cached(again), 0);
  EXPECT_EQ(h().board.Read().pages_free, 16);
}

TEST_F(PrefixReuseTest, ACancelledPrefillLeavesOnlyWhatItHadComputed) {
  BuildSerial(32, 32);
  CollectingSink& gone = h().Submit(PromptOf(200, 1), 5);
  CollectingSink& same = h().Submit(PromptOf(200, 1), 5);
  InStep(3, [&] { h().queue.PostCancel(RequestId{1}); });
  h().RunToEnd();
  EXPECT_EQ(gone.completion().status.code(), StatusCode::kCancelled);
  EXPECT_EQ(Cached(same), 96);
  ExpectAnswer(same, PromptOf(200, 1), 5);
}

TEST_F(PrefixReuseTest, NothingThatAFailedStepMayHaveWrittenIsReused) {
  BuildSerial(32, 64);
  CollectingSink& hit = h().Submit(PromptOf(200, 1), 5);
  CollectingSink& same = h().Submit(PromptOf(200, 1), 5);
  backend_.on_step = [&](int64_t step) {
    if (step != 2) return OkStatus();
    const std::vector<std::byte> half_written(kPageTokens * sizeof(TokenId));
    EXPECT_TRUE(backend_.WritePage(1, half_written).ok());
    return Internal("lost in the middle");
  };
  h().RunToEnd();
  EXPECT_EQ(hit.completion().status.code(), StatusCode::kInternal);
  EXPECT_EQ(Cached(same), 64);
  ExpectAnswer(same, PromptOf(200, 1), 5);
}

TEST_F(PrefixReuseTest, ACopyThatFailsFailsItsRequestAlone) {
  BuildSerial(32);
  h().Submit(PromptOf(100, 1), 5);
  CollectingSink& hit = h().Submit(PromptOf(100, 1), 5);
  CollectingSink& next = h().Submit(PromptOf(100, 1), 5);
  copying_.fail_copy = 1;
  h().RunToEnd();
  EXPECT_EQ(hit.completion().status.code(), StatusCode::kInternal);
  EXPECT_THAT(hit.completion().status.message(), testing::Not(HasSubstr("/dev")));
  EXPECT_EQ(hit.starts(), 0);
  ExpectAnswer(next, PromptOf(100, 1), 5);
}

TEST_F(PrefixReuseTest, CachedPagesMakeRoomForWhoRunsLeastRecentlyUsedFirst) {
  BuildSerial(5);
  h().Submit(PromptOf(100, 1), 4);
  h().Submit(PromptOf(100, 2), 4);
  h().Submit(PromptOf(100, 1), 4);  // Used again: 2 is the oldest now.
  CollectingSink& large = h().Submit(PromptOf(150, 3), 4);
  CollectingSink& kept = h().Submit(PromptOf(100, 1), 4);
  CollectingSink& lost = h().Submit(PromptOf(100, 2), 4);
  h().RunToEnd();
  ExpectAnswer(large, PromptOf(150, 3), 4);
  ExpectAnswer(kept, PromptOf(100, 1), 4);
  ExpectAnswer(lost, PromptOf(100, 2), 4);
  EXPECT_EQ(Cached(kept), 99);
  EXPECT_EQ(Cached(lost), 0);
  EXPECT_GE(h().Metric("renga_kv_cache_evictions_total"), 2);
  EXPECT_EQ(h().Metric("renga_preemptions_total"), 0);
}

TEST_F(PrefixReuseTest, APreemptedRequestFindsItsOwnPagesAgain) {
  Build({.scheduler = {.policy = "continuous"}, .pages = 7});
  CollectingSink& oldest = h().Submit(PromptOf(60, 1), 200);   // Grows to 5 pages.
  CollectingSink& victim = h().Submit(PromptOf(200, 2), 100);  // Grows to 5 pages.
  h().RunToEnd();
  ExpectAnswer(oldest, PromptOf(60, 1), 200);
  ExpectAnswer(victim, PromptOf(200, 2), 100);
  EXPECT_GE(h().Metric("renga_preemptions_total"), 1);
  EXPECT_THAT(Rows(), Le(60 + 200 + 200 + 100 + 150)) << "most of it was found again";
  EXPECT_LT(h().Metric("renga_wasted_tokens_total"), 150);
}

TEST_F(PrefixReuseTest, MetricsTellPromptTokensAndFirstTokensBySource) {
  BuildSerial(32);
  h().Submit(PromptOf(100, 1), 4);
  h().Submit(PromptOf(100, 1), 4);
  h().RunToEnd();
  const std::string text = h().metrics.Serialize();
  EXPECT_EQ(h().Metric("renga_prompt_tokens_total"), 200);
  EXPECT_THAT(text, HasSubstr("prompt_tokens_total{"));
  EXPECT_EQ(h().Metric("renga_kv_pages_cached"),
            static_cast<double>(h().board.Read().pages_cached));
  EXPECT_GT(h().board.Read().pages_cached, 0);
  EXPECT_NEAR(h().board.Read().cached_share, 0.0, 0.01)
      << "both were taken before anything was cached";
}

TEST_F(PrefixReuseTest, AFlushGivesUpAllThatNoSequenceHolds) {
  Build({.scheduler = {.policy = "continuous"}, .pages = 32});
  h().Submit(PromptOf(200, 1), 2);
  CollectingSink& running = h().Submit(PromptOf(150, 2), 40);
  int64_t flushed = -1;
  EngineSnapshot after;
  backend_.on_step = [&](int64_t step) {
    if (step == 10) {
      EXPECT_TRUE(h().queue.PostFlush([&](int64_t pages) { flushed = pages; }));
    }
    if (step == 12) after = h().board.Read();
    if (step == 15) h().queue.Close();
    return OkStatus();
  };
  h().engine.Run();
  h().ExpectAllEnded();
  EXPECT_EQ(flushed, 4);
  EXPECT_EQ(after.pages_cached, 0);
  EXPECT_EQ(after.pages_free, 32 - 3);
  ExpectAnswer(running, PromptOf(150, 2), 40);
}

}  // namespace
}  // namespace renga
