// Pages under pressure: whatever ends a request, and however little room there is, every
// page is accounted for and every answer is that of a run alone.

#include <atomic>
#include <random>
#include <thread>

#include "tests/engine/engine_fixture.h"

namespace renga {
namespace {

using testing::ElementsAreArray;

class PressureTest : public EngineTest, public testing::WithParamInterface<KvDtype> {
 protected:
  PressureTest() { dtype_ = GetParam(); }
  void ExpectAccounted() {
    const EngineSnapshot snapshot = h().board.Read();
    EXPECT_EQ(static_cast<int64_t>(h().Metric("renga_kv_pages_used")) +
                  snapshot.pages_cached + snapshot.pages_free,
              snapshot.pages_total);
  }
};

TEST_P(PressureTest, TenPagesServeRequestsThatNeedTwentyWithSharedBeginningsAndScores) {
  std::mt19937 rng(8);
  for (int round = 0; round < 50; ++round) {
    Build({.scheduler = {.max_sequences = 6, .prefill_slice_tokens = 40}, .pages = 10});
    struct Sent {
      CollectingSink* sink;
      std::vector<TokenId> prompt;
      int64_t tokens;
      bool scored;
    };
    std::vector<Sent> all;
    for (int i = 0; i < 6; ++i) {
      std::vector<TokenId> prompt = PromptOf(static_cast<int64_t>(rng() % 130), 1);
      const std::vector<TokenId> own =
          PromptOf(1 + static_cast<int64_t>(rng() % 120), 2 + i);
      prompt.insert(prompt.end(), own.begin(), own.end());
      const int64_t tokens = 30 + static_cast<int64_t>(rng() % 90);
      EngineRequest request = h().Request(prompt, tokens);
      const bool scored = rng() % 3 == 0;
      request.prompt_logprobs = scored ? 1 : -1;
      request.echo = scored;
      all.push_back({&h().Submit(std::move(request)), prompt, tokens, scored});
    }
    h().RunToEnd();
    for (const Sent& sent : all) {
      ExpectAnswer(*sent.sink, sent.prompt, sent.tokens);
      if (!sent.scored) continue;
      ASSERT_EQ(sent.sink->prompt_logprobs().size(), sent.prompt.size() - 1);
      for (size_t i = 1; i < sent.prompt.size(); ++i) {
        const std::span<const TokenId> history(sent.prompt.data(), i);
        ASSERT_EQ(sent.sink->prompt_logprobs()[i - 1].logprob,
                  backend_.ExpectedLogprob(history, sent.prompt[i]));
      }
    }
    ExpectAccounted();
  }
}

// One request of every kind of end, in a random order.
class EndsTest : public PressureTest {
 protected:
  void SubmitSome(std::mt19937& rng, int count) {
    for (int i = 0; i < count; ++i) {
      std::vector<TokenId> prompt =
          PromptOf(1 + static_cast<int64_t>(rng() % 200), static_cast<int>(rng() % 5));
      if (rng() % 20 == 0) prompt[0] = FakeBackend::kPoisonToken;
      EngineRequest request = Drawing(std::move(prompt), static_cast<int64_t>(rng() % 80),
                                      rng() % 4 == 0 ? 3 : 1);
      request.use_prefix_cache = rng() % 6 != 0;
      request.cache_salt = rng() % 8 == 0 ? "salt" : "";
      if (rng() % 10 == 0) request.prompt_logprobs = 0;
      if (rng() % 10 == 0) request.deadline = h().clock.Now() + Duration(rng() % 100);
      if (rng() % 15 == 0) request.n = 99;  // Refused.
      const RequestId id = request.id;
      const int64_t at = 1 + static_cast<int64_t>(rng() % 30);
      const int how = static_cast<int>(rng() % 5);
      h().Submit(std::move(request), [this, id, at, how](int64_t n, TokenId) {
        if (n != at) return SinkVerdict::kContinue;
        if (how == 0) return SinkVerdict::kStop;
        if (how == 1) h().queue.PostCancel(id);
        if (how != 2) return SinkVerdict::kContinue;
        h().queue.PostResume(id);
        return SinkVerdict::kPause;
      });
      if (rng() % 6 == 0) h().queue.PostCancel(id);  // Before it was even seen.
    }
  }
};

TEST_P(EndsTest, AfterTwoThousandRequestsOfAllEndsAFlushGivesEveryPageBack) {
  backend_.keep_records = false;
  Build({.scheduler = {.window_ms = 1, .max_sequences = 8, .max_step_tokens = 100},
         .pages = 14});
  std::mt19937 rng(4);
  int submitted = 0;
  int64_t flushed = -1;
  backend_.on_step = [&](int64_t step) {
    h().clock.Advance(Duration(10));
    if (step % 499 == 0) return Internal("a launch was lost");
    return OkStatus();
  };
  std::thread engine([&] { h().engine.Run(); });
  while (submitted < 2000) {
    SubmitSome(rng, 100);
    submitted += 100;
    EngineSnapshot snapshot;
    do {
      std::this_thread::yield();
      snapshot = h().board.Read();
    } while (snapshot.busy || snapshot.running > 0 || h().queue.waiting_requests() > 0);
    EXPECT_EQ(snapshot.pages_free + snapshot.pages_cached, 14) << submitted;
    ExpectAccounted();
  }
  std::atomic<bool> done{false};
  ASSERT_TRUE(h().queue.PostFlush([&](int64_t pages) {
    flushed = pages;
    done = true;
  }));
  while (!done) std::this_thread::yield();
  h().queue.Close();
  engine.join();
  h().ExpectAllEnded();
  EXPECT_GE(flushed, 0);
  EXPECT_EQ(h().board.Read().pages_free, 14);
  EXPECT_EQ(MemoryLedger::Process().Read(MemoryPurpose::kRequests).buffers, 0);
}

std::string DtypeName(const testing::TestParamInfo<KvDtype>& tested) {
  return std::string(KvDtypeName(tested.param));
}
INSTANTIATE_TEST_SUITE_P(Pages, PressureTest,
                         testing::Values(KvDtype::kF16, KvDtype::kInt8), DtypeName);
INSTANTIATE_TEST_SUITE_P(Pages, EndsTest, testing::Values(KvDtype::kF16, KvDtype::kInt8),
                         DtypeName);

}  // namespace
}  // namespace renga
