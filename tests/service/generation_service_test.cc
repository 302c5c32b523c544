// What the service makes of requests, and what it says of itself.

#include "service/generation_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/service/service_fixture.h"

namespace renga {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

class GenerationServiceTest : public ServiceFixture {};

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

TEST_F(GenerationServiceTest, EveryFieldReachesTheEngine) {
  options_.first_token_limit = milliseconds(700);
  Make();
  GenerateRequest request = Request(std::vector<TokenId>{1, 2});
  SamplingParams& sampling = request.sampling;
  sampling.temperature = 0.5f;
  sampling.top_k = 3;
  sampling.typical_p = 0.9f;
  sampling.top_p = 0.8f;
  sampling.min_p = 0.1f;
  sampling.repetition_penalty = 1.5f;
  sampling.presence_penalty = -1.0f;
  sampling.frequency_penalty = 2.0f;
  sampling.logit_bias = {{.token = 7, .bias = -100.0f}};
  request.max_tokens = 9;
  request.stop_token_ids = {40, 41};
  request.min_tokens = 4;
  request.n = 3;
  request.logprobs = 2;
  request.prompt_logprobs = 0;
  request.echo = true;
  request.priority = Priority::kHigh;
  request.tenant = "acme";
  request.cache_salt = "s";
  request.use_prefix_cache = false;
  request.deadline = clock_.Now() + seconds(60);
  request.arrival = clock_.Now() - milliseconds(1);
  const GenerateRequest in = request;
  CollectingSink sink;
  EngineRequest out = Submitted(std::move(request), sink);

  EXPECT_EQ(out.sampling.temperature, 0.5f);
  EXPECT_EQ(out.sampling.top_k, 3);
  EXPECT_EQ(out.sampling.typical_p, 0.9f);
  EXPECT_EQ(out.sampling.top_p, 0.8f);
  EXPECT_EQ(out.sampling.min_p, 0.1f);
  EXPECT_EQ(out.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(out.sampling.presence_penalty, -1.0f);
  EXPECT_EQ(out.sampling.frequency_penalty, 2.0f);
  ASSERT_EQ(out.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(out.sampling.logit_bias[0].token, 7);
  EXPECT_EQ(out.max_tokens, 9);
  EXPECT_THAT(out.stop_tokens, ElementsAre(40, 41));
  EXPECT_EQ(out.min_tokens, 4);
  EXPECT_EQ(out.n, 3);
  EXPECT_EQ(out.logprobs, 2);
  EXPECT_EQ(out.prompt_logprobs, 0);
  EXPECT_TRUE(out.echo);
  EXPECT_EQ(out.priority, Priority::kHigh);
  EXPECT_EQ(out.tenant, "acme");
  EXPECT_FALSE(out.use_prefix_cache);
  EXPECT_EQ(out.first_token_limit, milliseconds(700));
  EXPECT_EQ(out.arrival, in.arrival);
  EXPECT_EQ(out.deadline, in.deadline);
  EXPECT_TRUE(out.counted);
  End(out);
}

TEST_F(GenerationServiceTest, AbsentFieldsAreOff) {
  Make();
  CollectingSink sink;
  EngineRequest out = Submitted(Request("a"), sink);
  EXPECT_EQ(out.logprobs, -1);
  EXPECT_EQ(out.prompt_logprobs, -1);
  EXPECT_EQ(out.n, 1);
  EXPECT_EQ(out.min_tokens, 0);
  EXPECT_FALSE(out.echo);
  EXPECT_TRUE(out.use_prefix_cache);
  EXPECT_EQ(out.first_token_limit, Duration::zero());
  End(out);
}

// Case E3.
TEST_F(GenerationServiceTest, CachesAreSharedByEqualTenantsWithEqualSaltsAlone) {
  Make();
  const auto name_of = [&](const std::string& tenant, const std::string& salt) {
    GenerateRequest request = Request("a");
    request.tenant = tenant;
    request.cache_salt = salt;
    CollectingSink sink;
    EngineRequest out = Submitted(std::move(request), sink);
    End(out);
    return out.cache_salt;
  };
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"", ""},      {"", "abc"},
      {"a", "bc"},   {"ab", "c"},
      {"abc", ""},   {"1:a", "bc"},
      {"1", "bc"},   {"", "1:abc"},
      {"0:", "abc"}, {std::string(1, '\0'), ""}};
  std::set<std::string> names;
  for (const auto& [tenant, salt] : pairs) {
    EXPECT_TRUE(names.insert(name_of(tenant, salt)).second) << tenant << ", " << salt;
    EXPECT_EQ(name_of(tenant, salt), name_of(tenant, salt));
  }
}

TEST_F(GenerationServiceTest, WithoutPrefixCacheNoRequestUsesIt) {
  options_.prefix_cache = false;
  Make();
  CollectingSink sink;
  EngineRequest out = Submitted(Request("a"), sink);
  EXPECT_FALSE(out.use_prefix_cache);
  End(out);
}

// Case C7: nothing is generated.
TEST_F(GenerationServiceTest, NoTokensAreLegalWhereThePromptIsWanted) {
  Make();
  GenerateRequest request = Request("a");
  request.max_tokens = 0;
  EXPECT_EQ(Refusal(request).field(), "max_tokens");
  request.echo = true;
  CollectingSink sink;
  EngineRequest out = Submitted(std::move(request), sink);
  EXPECT_EQ(out.max_tokens, 0);
  EXPECT_TRUE(out.max_tokens_given);
  End(out);
}

TEST_F(GenerationServiceTest, MinTokensAreNeverMoreThanThereIsRoomFor) {
  Make();
  GenerateRequest request = Request(std::vector<TokenId>{1, 2});
  request.min_tokens = std::numeric_limits<int64_t>::max();
  CollectingSink sink;
  EngineRequest out = Submitted(std::move(request), sink);
  EXPECT_EQ(out.min_tokens, kContext - 2);
  EXPECT_EQ(out.max_tokens, kContext - 2);
  End(out);
}

TEST_F(GenerationServiceTest, AnEchoIsTheTextThatDetokenizeGives) {
  struct EchoSink final : TokenSink {
    void OnStart(const StartInfo& info) override { text = info.prompt_text; }
    SinkVerdict OnToken(const TokenChunk&) override { return SinkVerdict::kContinue; }
    void OnDone(const Completion&) override {}
    std::string text;
  };
  Make();
  const std::vector<TokenId> ids = {kBos, 'a', 0xE2, 0x82, 0xAC, kEnd, 0xFF, 'b', 0xE2};
  for (const bool echo : {true, false}) {
    GenerateRequest request = Request(ids);
    request.echo = echo;
    EchoSink sink;
    EngineRequest out = Submitted(std::move(request), sink);
    out.sink->OnStart({});
    EXPECT_EQ(sink.text, echo ? *service_->Detokenize(ids) : "");
    End(out);
  }
}

TEST_F(GenerationServiceTest, EveryChoiceHasItsOwnTextAndStops) {
  Make();
  GenerateRequest request = Request("a");
  request.n = 2;
  request.stop = {"xy"};
  request.min_tokens = 1;
  CollectingSink sink;
  EngineRequest out = Submitted(std::move(request), sink);
  out.sink->OnStart({});
  const auto give = [&](int32_t choice, TokenId token) {
    return out.sink->OnToken({.choice = choice, .tokens = {&token, 1}, .text = {}});
  };
  EXPECT_EQ(give(0, 'x'), SinkVerdict::kContinue);
  EXPECT_EQ(give(1, 'x'), SinkVerdict::kContinue);
  EXPECT_EQ(give(1, 'z'), SinkVerdict::kContinue);
  EXPECT_TRUE(sink.tokens(0).empty()) << "it waits for its y";
  EXPECT_THAT(sink.tokens(1), ElementsAre('x', 'z'));
  EXPECT_EQ(give(0, 'y'), SinkVerdict::kStop);
  out.sink->OnChoiceEnd({.choice = 0, .finish_reason = FinishReason::kStop});
  out.sink->OnChoiceEnd({.choice = 1, .finish_reason = FinishReason::kLength});
  End(out);
  ASSERT_EQ(sink.ends().size(), 2u);
  EXPECT_EQ(sink.ends()[0].stop_text, "xy");
  EXPECT_EQ(sink.ends()[1].stop_text, "");
  EXPECT_EQ(sink.completion().stop_cause, StopCause::kStopString);
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

TEST_F(GenerationServiceTest, MoreChoicesThanCanEverRunAreRefused) {
  options_.max_sequences = 4;
  Make();
  GenerateRequest request = Request("a");
  request.n = 5;
  const Status status = Refusal(request);
  EXPECT_EQ(status.field(), "n");
  EXPECT_THAT(status.message(), HasSubstr("at most 4"));
  request.n = 4;
  CollectingSink sink;
  EngineRequest out = Submitted(std::move(request), sink);
  End(out);
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

TEST_F(GenerationServiceTest, AFullQueueStaysReady) {
  Make(6, {.max_requests = 1, .max_tokens = 10});
  Wait(10);
  board_.Publish({.last_progress = clock_.Now(), .busy = true});
  CollectingSink sink;
  service_->Generate(Request("a"), sink);
  EXPECT_TRUE(sink.done());
  EXPECT_TRUE(service_->Ready());
}

TEST_F(GenerationServiceTest, TheLoadHasAllNumbers) {
  options_.max_sequences = 12;
  Make(6, {.max_requests = 20, .max_tokens = 3000});
  EngineSnapshot engine = Measured();
  engine.last_progress = clock_.Now();
  engine.running = 5;
  engine.pages_total = 30;
  engine.pages_free = 10;
  engine.pages_cached = 4;
  engine.busy_share = 0.75;
  board_.Publish(engine);
  Wait(50, 1);
  Wait(70, 2);
  const LoadInfo load = service_->GetLoad();
  EXPECT_TRUE(load.ready);
  EXPECT_EQ(load.running, 5);
  EXPECT_EQ(load.waiting, 2);
  EXPECT_EQ(load.waiting_tokens, 120);
  EXPECT_EQ(load.max_sequences, 12);
  EXPECT_EQ(load.max_waiting, 20);
  EXPECT_EQ(load.max_waiting_tokens, 3000);
  EXPECT_EQ(load.pages_total, 30);
  EXPECT_EQ(load.pages_free, 10);
  EXPECT_EQ(load.pages_cached, 4);
  EXPECT_EQ(load.busy_share, 0.75);
  EXPECT_EQ(load.predicted_first_token, Predicted(64));
  EXPECT_GT(load.predicted_first_token, Duration::zero());
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
