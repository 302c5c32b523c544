// The service against a queue that the test empties by hand, in the engine's place.

#include "service/generation_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/collecting_sink.h"
#include "tests/fakes/manual_clock.h"

namespace renga {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr TokenId kBos = 256;
constexpr TokenId kEnd = 257;

// Every byte is a token; 256 and 257 are control tokens "<bos>" and "<end>".
class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (int b = 0; b < 256; ++b) bytes_.push_back(std::string(1, static_cast<char>(b)));
  }
  StatusOr<std::vector<TokenId>> Encode(const MarkedText& text) const override {
    if (gate) gate();
    std::vector<TokenId> ids;
    for (const char c : text.text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string_view Bytes(TokenId id) const override {
    return id < 256 ? std::string_view(bytes_[static_cast<size_t>(id)])
                    : std::string_view();
  }
  bool IsControl(TokenId id) const override { return id >= 256; }
  int64_t vocab_size() const override { return 258; }
  TokenId bos_token_id() const override { return kBos; }
  bool add_bos_token() const override { return true; }
  std::span<const TokenId> end_token_ids() const override { return ends_; }

  std::function<void()> gate;  // Runs inside Encode.

 private:
  std::vector<std::string> bytes_;
  std::vector<TokenId> ends_ = {kEnd};
};

class GenerationServiceTest : public testing::Test {
 protected:
  static constexpr int64_t kContext = 500;

  void Make(int64_t kv_pages = 6, WaitQueue::Limits limits = {}) {
    queue_ = std::make_unique<WaitQueue>(limits);
    service_ = std::make_unique<GenerationServiceImpl>(
        GenerationOptions{
            .kv_pages = kv_pages, .stall = seconds(2), .pool = pool_limits_},
        TinyInfo(),
        GenerationParts{.tokenizer = tokenizer_,
                        .chat_template = chat_template_.get(),
                        .no_template_reason = "the model file has none",
                        .queue = *queue_,
                        .board = board_,
                        .metrics = metrics_,
                        .clock = clock_});
    service_->SetReady(true);
  }

  static ModelInfo TinyInfo() {
    ModelInfo info;
    info.name = "tiny";
    info.context_length = kContext;
    info.vocab_size = 258;
    info.end_token_ids = {kEnd};
    info.bos_token_id = kBos;
    return info;
  }

  void UseTemplate(const std::string& source) {
    auto parsed = ChatTemplate::Parse(source);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    chat_template_ = *std::move(parsed);
  }

  static GenerateRequest Request(PromptInput prompt) {
    GenerateRequest request;
    request.prompt = std::move(prompt);
    return request;
  }

  // What a request that must fail is told.
  Status Refusal(GenerateRequest request) {
    CollectingSink sink;
    service_->Generate(std::move(request), sink);
    EXPECT_TRUE(service_->WaitSubmitted(TimePoint::max()));
    for (EngineRequest& wrong : queue_->Take(TimePoint{}).requests) {
      ADD_FAILURE() << "it reached the engine";
      End(wrong);
    }
    EXPECT_TRUE(sink.done());
    return sink.completion().status;
  }

  // The request as the engine gets it.
  EngineRequest Submitted(GenerateRequest request, TokenSink& sink) {
    service_->Generate(std::move(request), sink);
    EXPECT_TRUE(service_->WaitSubmitted(TimePoint::max()));
    WaitQueue::Mail mail = queue_->Take(TimePoint{});
    EXPECT_EQ(mail.requests.size(), 1u);
    return mail.requests.empty() ? EngineRequest{} : std::move(mail.requests[0]);
  }

  static void End(EngineRequest& request, Status status = OkStatus()) {
    Completion completion;
    completion.status = std::move(status);
    completion.finish_reason = FinishReason::kStop;
    request.sink->OnDone(completion);
  }

  double Count(const std::string& series) const {
    const std::string text = metrics_.Serialize();
    const size_t at = text.find(series + ' ');
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 1));
  }
  double Outcomes(const std::string& outcome) const {
    return Count("renga_requests_total{model=\"tiny\",outcome=\"" + outcome + "\"}");
  }
  double Rejections(const std::string& reason) const {
    return Count("renga_rejections_total{model=\"tiny\",reason=\"" + reason + "\"}");
  }
  double AllOutcomes() const {
    return Outcomes("ok") + Outcomes("error") + Outcomes("cancelled") +
           Outcomes("deadline") + Outcomes("rejected");
  }

  ByteTokenizer tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
  PromptPool::Limits pool_limits_;
  SnapshotBoard board_;
  ServerMetrics metrics_{"tiny", "fake"};
  ManualClock clock_;
  std::unique_ptr<WaitQueue> queue_;
  std::unique_ptr<GenerationServiceImpl> service_;
};

// ---- What reaches the engine.

TEST_F(GenerationServiceTest, ATextPromptBeginsWithBosAndIdsAreTakenAsTheyAre) {
  Make();
  CollectingSink sink;
  EngineRequest text = Submitted(Request("ab"), sink);
  EXPECT_THAT(text.prompt, ElementsAre(kBos, 'a', 'b'));
  End(text);
  CollectingSink ids_sink;
  EngineRequest ids = Submitted(Request(std::vector<TokenId>{kEnd, 7}), ids_sink);
  EXPECT_THAT(ids.prompt, ElementsAre(kEnd, 7));
  End(ids);
  EXPECT_EQ(Outcomes("ok"), 2);
}

TEST_F(GenerationServiceTest, AChatIsRenderedByTheTemplate) {
  UseTemplate("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}");
  Make();
  CollectingSink sink;
  EngineRequest request =
      Submitted(Request(ChatInput{.messages = {{"user", "x"}}}), sink);
  EXPECT_THAT(request.prompt, ElementsAre('u', 's', 'e', 'r', ':', 'x', ';'));
  End(request);
}

TEST_F(GenerationServiceTest, AbsentMaxTokensRunToTheEndOfTheContextAndHugeOnesAreCut) {
  Make();
  const auto with = [&](std::optional<int64_t> max_tokens) {
    GenerateRequest request = Request(std::vector<TokenId>{1, 2});
    request.max_tokens = max_tokens;
    CollectingSink sink;
    EngineRequest out = Submitted(std::move(request), sink);
    End(out);
    return std::pair(out.max_tokens, out.max_tokens_given);
  };
  EXPECT_EQ(with(std::nullopt), std::pair(kContext - 2, false));
  EXPECT_EQ(with(std::numeric_limits<int64_t>::max()), std::pair(kContext - 2, false));
  EXPECT_EQ(with(kContext - 2), std::pair(kContext - 2, true));
  EXPECT_EQ(with(8), std::pair(int64_t{8}, true));
}

TEST_F(GenerationServiceTest, EndTokensAreLeftOutOnlyOnWish) {
  Make();
  CollectingSink one, two;
  EngineRequest with = Submitted(Request("a"), one);
  EXPECT_THAT(with.end_tokens, ElementsAre(kEnd));
  End(with);
  GenerateRequest request = Request("a");
  request.ignore_end_token = true;
  EngineRequest without = Submitted(std::move(request), two);
  EXPECT_TRUE(without.end_tokens.empty());
  End(without);
}

TEST_F(GenerationServiceTest, AGivenSeedIsKeptAndFreshOnesDiffer) {
  Make();
  std::set<uint64_t> seeds;
  for (int i = 0; i < 20; ++i) {
    CollectingSink sink;
    EngineRequest request = Submitted(Request("a"), sink);
    seeds.insert(request.seed);
    End(request);
  }
  EXPECT_EQ(seeds.size(), 20u);
  GenerateRequest request = Request("a");
  request.sampling.seed = 5;
  CollectingSink sink;
  EngineRequest given = Submitted(std::move(request), sink);
  EXPECT_EQ(given.seed, 5u);
  End(given);
}

TEST_F(GenerationServiceTest, TheAnswerReachesTheClientAsText) {
  Make();
  CollectingSink sink;
  EngineRequest request = Submitted(Request("a"), sink);
  request.sink->OnStart({});
  for (const TokenId token : {'h', 'i'}) {
    request.sink->OnToken({.choice = 0, .tokens = {&token, 1}, .text = {}});
  }
  End(request);
  EXPECT_EQ(sink.text(), "hi");
}

// ---- Refusals.

TEST_F(GenerationServiceTest, WrongFieldsAreRefusedByNameAndCountedOnce) {
  Make();
  GenerateRequest request = Request("a");
  request.sampling.top_p = 2.0f;
  EXPECT_EQ(Refusal(request).field(), "top_p");
  request = Request(std::vector<TokenId>{258});
  EXPECT_EQ(Refusal(request).field(), "token_ids[0]");
  request = Request("a");
  request.stop = {"ok", "\xff"};
  EXPECT_EQ(Refusal(request).field(), "stop[1]");
  EXPECT_EQ(Outcomes("rejected"), 3);
  EXPECT_EQ(Rejections("bad_request"), 3);
  EXPECT_EQ(AllOutcomes(), 3);
}

TEST_F(GenerationServiceTest, AnotherModelIsNotFound) {
  Make();
  GenerateRequest request = Request("a");
  request.model = "other";
  EXPECT_EQ(Refusal(request).code(), StatusCode::kNotFound);
}

TEST_F(GenerationServiceTest, APromptThatCannotFitTheContextIsRefusedWithBothNumbers) {
  Make(/*kv_pages=*/100);
  const Status status = Refusal(Request(std::vector<TokenId>(kContext, 1)));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("500 tokens"));
  EXPECT_THAT(status.message(), HasSubstr("context of 500"));
  EXPECT_EQ(Rejections("too_long"), 1);
  CollectingSink sink;
  EngineRequest fits = Submitted(Request(std::vector<TokenId>(kContext - 1, 1)), sink);
  EXPECT_EQ(fits.max_tokens, 1);
  End(fits);
}

TEST_F(GenerationServiceTest, APromptThatCannotFitThePoolIsRefusedWithBothNumbers) {
  Make(/*kv_pages=*/2);
  const Status status = Refusal(Request(std::vector<TokenId>(129, 1)));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("129 tokens"));
  EXPECT_THAT(status.message(), HasSubstr("128"));
  CollectingSink sink;
  EngineRequest fits = Submitted(Request(std::vector<TokenId>(128, 1)), sink);
  End(fits);
}

TEST_F(GenerationServiceTest, AHugeTextIsRefusedBeforeItIsEncoded) {
  Make();
  tokenizer_.gate = [] { FAIL() << "encoded"; };
  const Status status = Refusal(Request(std::string(1 << 20, 'a')));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("1048576 bytes"));
}

TEST_F(GenerationServiceTest, AChatWithoutTemplateIsRefusedWithTheWayOut) {
  Make();
  const Status status = Refusal(Request(ChatInput{.messages = {{"user", "x"}}}));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("no chat template"));
  EXPECT_THAT(status.message(), HasSubstr("token_ids"));
}

TEST_F(GenerationServiceTest, WhatTheTemplateRefusesIsTheClientsError) {
  UseTemplate("{{ raise_exception('System role not supported') }}");
  Make();
  const Status status = Refusal(Request(ChatInput{.messages = {{"system", "x"}}}));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("System role not supported"));
}

TEST_F(GenerationServiceTest, AFullQueueIsRefusedWithADelay) {
  Make(6, {.max_requests = 1, .max_tokens = 1000});
  CollectingSink first, second;
  service_->Generate(Request("a"), first);
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  service_->Generate(Request("b"), second);
  second.WaitDone();
  const Status status = second.completion().status;
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_GE(status.retry_after().value_or(Duration(0)), milliseconds(100));
  EXPECT_EQ(Rejections("queue_full"), 1);
  WaitQueue::Mail mail = queue_->Take(TimePoint{});
  ASSERT_EQ(mail.requests.size(), 1u);
  End(mail.requests[0]);
}

TEST_F(GenerationServiceTest, APastDeadlineNeverReachesTheEngine) {
  Make();
  GenerateRequest request = Request("a");
  request.deadline = clock_.Now();
  EXPECT_EQ(Refusal(request).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Outcomes("deadline"), 1);
  EXPECT_EQ(AllOutcomes(), 1);
}

TEST_F(GenerationServiceTest, ADeadlineThatPassesWhileEncodingCounts) {
  Make();
  tokenizer_.gate = [this] { clock_.Advance(seconds(10)); };
  GenerateRequest request = Request("a");
  request.deadline = clock_.Now() + seconds(5);
  EXPECT_EQ(Refusal(request).code(), StatusCode::kDeadlineExceeded);
}

TEST_F(GenerationServiceTest, NothingIsTakenBeforeReadyNorWhileDraining) {
  Make();
  service_->SetReady(false);
  EXPECT_EQ(Refusal(Request("a")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Rejections("not_ready"), 1);
  service_->SetReady(true);
  service_->StartDrain();
  EXPECT_EQ(Refusal(Request("a")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Rejections("draining"), 1);
  EXPECT_FALSE(service_->Ready());
}

TEST_F(GenerationServiceTest, AClosedQueueIsUnavailable) {
  Make();
  queue_->Close();
  EXPECT_EQ(Refusal(Request("a")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(AllOutcomes(), 1);
}

TEST_F(GenerationServiceTest, WarmUpRequestsPassBeforeReadyAndAreNotCounted) {
  Make();
  service_->SetReady(false);
  CollectingSink sink;
  service_->GenerateForWarmUp(Request("a"), sink);
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  WaitQueue::Mail mail = queue_->Take(TimePoint{});
  ASSERT_EQ(mail.requests.size(), 1u);
  End(mail.requests[0]);
  EXPECT_EQ(AllOutcomes(), 0);
}

// ---- Cancelling.

TEST_F(GenerationServiceTest, CancellingInThePoolEndsTheRequestThere) {
  Make();
  const RequestId id = service_->NewRequestId();
  tokenizer_.gate = [&] { service_->Cancel(id); };
  GenerateRequest request = Request("a");
  request.id = id;
  EXPECT_EQ(Refusal(request).code(), StatusCode::kCancelled);
  EXPECT_EQ(Outcomes("cancelled"), 1);
  EXPECT_EQ(Count(R"(renga_cancellations_total{model="tiny",stage="queued"})"), 1);
  EXPECT_EQ(AllOutcomes(), 1);
}

TEST_F(GenerationServiceTest, CancellingLaterReachesTheEngine) {
  Make();
  GenerateRequest request = Request("a");
  request.id = service_->NewRequestId();
  const RequestId id = request.id;
  CollectingSink sink;
  EngineRequest out = Submitted(std::move(request), sink);
  service_->Cancel(id);
  EXPECT_THAT(queue_->Take(TimePoint{}).cancels, ElementsAre(id));
  End(out, Cancelled("x"));
  EXPECT_EQ(Outcomes("cancelled"), 1);
}

// Cancels at any moment: every request ends once, and is counted once. A small engine of
// the test's own ends what it gets.
TEST_F(GenerationServiceTest, RacingCancelsEndEveryRequestOnce) {
  Make();
  std::atomic<bool> ending{false};
  std::thread engine([&] {
    std::vector<EngineRequest> running;
    for (bool last = false; !last;) {
      last = ending;
      WaitQueue::Mail mail = queue_->Take(TimePoint{});
      for (EngineRequest& r : mail.requests) {
        queue_->Release(1, static_cast<int64_t>(r.prompt.size()));
        running.push_back(std::move(r));
      }
      for (const RequestId id : mail.cancels) {
        for (EngineRequest& r : running) {
          if (r.id == id) End(r, Cancelled("x"));
        }
        std::erase_if(running, [&](const EngineRequest& r) { return r.id == id; });
      }
      if (running.size() <= 3 && !last) continue;
      for (EngineRequest& r : running) End(r);
      running.clear();
    }
  });
  constexpr int kRequests = 300;
  std::vector<std::unique_ptr<CollectingSink>> sinks;
  for (int i = 0; i < kRequests; ++i) {
    sinks.push_back(std::make_unique<CollectingSink>());
    GenerateRequest request = Request("a");
    request.id = service_->NewRequestId();
    const RequestId id = request.id;
    service_->Generate(std::move(request), *sinks.back());
    if (i % 2 == 0) service_->Cancel(id);
  }
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  ending = true;
  engine.join();
  for (const auto& sink : sinks) EXPECT_TRUE(sink->done());
  EXPECT_EQ(AllOutcomes(), kRequests);
}

TEST_F(GenerationServiceTest, IdsAreNeverZeroNorReused) {
  Make();
  std::set<RequestId> ids;
  for (int i = 0; i < 100; ++i) ids.insert(service_->NewRequestId());
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_FALSE(ids.contains(RequestId{}));
}

// ---- Ready.

TEST_F(GenerationServiceTest, AnIdleEngineIsReadyForEver) {
  Make();
  board_.Publish({.last_progress = clock_.Now(), .busy = false});
  clock_.Advance(seconds(3600));
  EXPECT_TRUE(service_->Ready());
}

TEST_F(GenerationServiceTest, ABusyEngineMustMakeProgress) {
  Make();
  board_.Publish({.last_progress = clock_.Now(), .busy = true});
  clock_.Advance(seconds(2));
  EXPECT_TRUE(service_->Ready());
  clock_.Advance(milliseconds(1));
  EXPECT_FALSE(service_->Ready());
  board_.Publish({.last_progress = clock_.Now(), .busy = true});
  EXPECT_TRUE(service_->Ready());
}

TEST_F(GenerationServiceTest, WorkForAnIdleEngineStartsTheClockWhenItArrives) {
  Make();
  board_.Publish({.last_progress = clock_.Now(), .busy = false});
  clock_.Advance(seconds(3600));
  CollectingSink sink;
  service_->Generate(Request("a"), sink);
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  EXPECT_TRUE(service_->Ready());
  clock_.Advance(seconds(3));  // The engine does not take it.
  EXPECT_FALSE(service_->Ready());
  WaitQueue::Mail mail = queue_->Take(TimePoint{});
  End(mail.requests.at(0));
}

// ---- Tokenize, Detokenize.

TEST_F(GenerationServiceTest, TokenizeGivesWhatGenerateWouldCompute) {
  UseTemplate("{{ messages[0].content }}");
  Make();
  EXPECT_THAT(*service_->Tokenize("ab"), ElementsAre(kBos, 'a', 'b'));
  EXPECT_THAT(*service_->Tokenize(ChatInput{.messages = {{"user", "x"}}}),
              ElementsAre('x'));
  EXPECT_FALSE(service_->Tokenize(ChatInput{}).ok());
}

TEST_F(GenerationServiceTest, DetokenizeReplacesBadBytesAndChecksIds) {
  Make();
  EXPECT_EQ(*service_->Detokenize({'a', 0xE2, 0x82, 0xAC, kEnd, 'b'}), "a\u20acb");
  EXPECT_EQ(*service_->Detokenize({0xFF, 'a', 0xE2, 0x82}), "\uFFFDa\uFFFD");
  EXPECT_EQ(*service_->Detokenize({}), "");
  EXPECT_EQ(service_->Detokenize({1, 258}).status().field(), "token_ids[1]");
  EXPECT_EQ(service_->Detokenize({-1}).status().field(), "token_ids[0]");
}

}  // namespace
}  // namespace renga
