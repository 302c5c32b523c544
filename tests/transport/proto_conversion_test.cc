#include "transport/proto_conversion.h"

#include <gmock/gmock.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/fakes/fake_generation_service.h"

namespace renga {
namespace {

v1::GenerateRequest Text() {
  v1::GenerateRequest message;
  message.set_text("x");
  return message;
}

Status RefusalOf(v1::GenerateRequest message) {
  return ToGenerateRequest(message, TimePoint()).status();
}

TEST(ProtoConversionTest, AbsentFieldsTakeTheDefaultsOfTheService) {
  v1::GenerateRequest message;
  message.set_text("");
  const auto request = ToGenerateRequest(message, TimePoint());
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(std::get<std::string>(request->prompt), "");  // An empty prompt is a prompt.
  EXPECT_EQ(request->sampling.temperature, SamplingParams{}.temperature);
  EXPECT_EQ(request->sampling.top_k, SamplingParams{}.top_k);
  EXPECT_EQ(request->sampling.top_p, SamplingParams{}.top_p);
  EXPECT_EQ(request->sampling.min_p, SamplingParams{}.min_p);
  EXPECT_EQ(request->sampling.seed, std::nullopt);
  EXPECT_EQ(request->max_tokens, std::nullopt);
  EXPECT_FALSE(request->ignore_end_token);
  EXPECT_EQ(request->sampling.typical_p, 1.0f);
  EXPECT_EQ(request->sampling.repetition_penalty, 1.0f);
  EXPECT_EQ(request->sampling.presence_penalty, 0.0f);
  EXPECT_EQ(request->sampling.frequency_penalty, 0.0f);
  EXPECT_TRUE(request->sampling.logit_bias.empty());
  EXPECT_EQ(request->min_tokens, 0);
  EXPECT_EQ(request->n, 1);
  EXPECT_EQ(request->logprobs, std::nullopt);
  EXPECT_EQ(request->prompt_logprobs, std::nullopt);
  EXPECT_FALSE(request->echo);
  EXPECT_EQ(request->priority, Priority::kNormal);
  EXPECT_EQ(request->deadline, std::nullopt);
  EXPECT_EQ(request->cache_salt, "");
  EXPECT_TRUE(request->use_prefix_cache);
}

TEST(ProtoConversionTest, AZeroThatIsSetIsNotADefault) {
  v1::GenerateRequest message;
  message.set_text("x");
  message.mutable_sampling()->set_temperature(0);
  message.mutable_sampling()->set_top_p(0);
  message.mutable_sampling()->set_seed(0);
  message.set_max_tokens(0);
  message.mutable_sampling()->set_typical_p(0);
  message.mutable_sampling()->set_repetition_penalty(0);
  message.set_n(0);
  message.set_logprobs(0);
  message.set_prompt_logprobs(0);
  const auto request = ToGenerateRequest(message, TimePoint());
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->sampling.temperature, 0.0f);
  EXPECT_EQ(request->sampling.top_p, 0.0f);
  EXPECT_EQ(request->sampling.seed, 0u);
  EXPECT_EQ(request->max_tokens, 0);
  EXPECT_EQ(request->sampling.typical_p, 0.0f);
  EXPECT_EQ(request->sampling.repetition_penalty, 0.0f);
  EXPECT_EQ(request->n, 0);
  EXPECT_EQ(request->logprobs, 0);
  EXPECT_EQ(request->prompt_logprobs, 0);
}

TEST(ProtoConversionTest, ExtremeNumbersArriveAsTheyAre) {
  constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();
  constexpr int32_t kMin32 = std::numeric_limits<int32_t>::min();
  v1::GenerateRequest message = Text();
  message.set_max_tokens(kMin64);
  message.set_min_tokens(kMin64);
  message.set_n(kMin32);
  message.set_logprobs(kMin32);
  message.set_prompt_logprobs(kMin32);
  message.mutable_sampling()->set_top_k(kMin32);
  message.mutable_sampling()->add_logit_bias()->set_token_id(kMin32);
  const auto request = ToGenerateRequest(message, TimePoint());
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->max_tokens, kMin64);
  EXPECT_EQ(request->min_tokens, kMin64);
  EXPECT_EQ(request->n, kMin32);
  EXPECT_EQ(request->logprobs, kMin32);
  EXPECT_EQ(request->prompt_logprobs, kMin32);
  EXPECT_EQ(request->sampling.top_k, kMin32);
  EXPECT_EQ(request->sampling.logit_bias.at(0).token, kMin32);
}

TEST(ProtoConversionTest, BestOfIsRefusedByNameWhateverItsValue) {
  for (const int32_t value : {0, 1, 4}) {
    v1::GenerateRequest message = Text();
    message.set_best_of(value);
    const Status status = RefusalOf(message);
    EXPECT_EQ(status.ToString(),
              "INVALID_ARGUMENT: best_of: is not supported; ask for n");
  }
}

TEST(ProtoConversionTest, EachPriorityHasItsClassAndOthersAreRefusedByNumber) {
  const std::vector<std::pair<v1::Priority, Priority>> classes = {
      {v1::PRIORITY_UNSPECIFIED, Priority::kNormal},
      {v1::PRIORITY_HIGH, Priority::kHigh},
      {v1::PRIORITY_NORMAL, Priority::kNormal},
      {v1::PRIORITY_LOW, Priority::kLow}};
  for (const auto& [wire, expected] : classes) {
    v1::GenerateRequest message = Text();
    message.set_priority(wire);
    EXPECT_EQ(ToGenerateRequest(message, TimePoint())->priority, expected);
  }
  for (const int number : {-1, 4, 1 << 30}) {
    v1::GenerateRequest message = Text();
    message.set_priority(static_cast<v1::Priority>(number));
    const Status status = RefusalOf(message);
    EXPECT_EQ(status.field(), "priority");
    EXPECT_THAT(status.message(), testing::HasSubstr(std::to_string(number)));
  }
}

TEST(ProtoConversionTest, ADeadlineCountsFromArrivalAndIsAtMostADay) {
  const TimePoint arrival(std::chrono::hours(1000));
  for (const int64_t ms : {int64_t{1}, int64_t{86'400'000}}) {
    v1::GenerateRequest message = Text();
    message.set_deadline_ms(ms);
    EXPECT_EQ(ToGenerateRequest(message, arrival)->deadline,
              arrival + std::chrono::milliseconds(ms));
  }
  for (const int64_t ms :
       {int64_t{0}, int64_t{-1}, int64_t{86'400'001}, std::numeric_limits<int64_t>::max(),
        std::numeric_limits<int64_t>::min()}) {
    v1::GenerateRequest message = Text();
    message.set_deadline_ms(ms);
    EXPECT_EQ(RefusalOf(message).field(), "deadline_ms");
  }
}

TEST(ProtoConversionTest, LogprobsCarryTheBytesOfEachToken) {
  FakeGenerationService service;
  const std::vector<TokenLogprob> logprobs = {
      {.token = 3, .logprob = -0.5f, .top = {{7, -0.25f}, {3, -0.5f}}},
      {.token = 4, .logprob = 0.0f}};
  const std::vector<TokenId> ids = {3, 4};
  v1::Chunk chunk;
  ToProto({.choice = 2, .tokens = ids, .text = "ab", .logprobs = logprobs}, service,
          chunk);
  EXPECT_EQ(chunk.choice(), 2);
  ASSERT_EQ(chunk.logprobs_size(), 2);
  EXPECT_EQ(chunk.logprobs(0).token_id(), 3);
  EXPECT_EQ(chunk.logprobs(0).logprob(), -0.5f);
  EXPECT_EQ(chunk.logprobs(0).token(), service.TokenBytes(3));
  ASSERT_EQ(chunk.logprobs(0).top_size(), 2);
  EXPECT_EQ(chunk.logprobs(0).top(0).token_id(), 7);
  EXPECT_EQ(chunk.logprobs(0).top(0).logprob(), -0.25f);
  EXPECT_EQ(chunk.logprobs(0).top(0).token(), service.TokenBytes(7));
  EXPECT_EQ(chunk.logprobs(0).top(1).token_id(), 3);
  EXPECT_EQ(chunk.logprobs(1).token_id(), 4);
  EXPECT_EQ(chunk.logprobs(1).top_size(), 0);
}

TEST(ProtoConversionTest, TheStartTellsThePromptAndWhereItsKeysCameFrom) {
  FakeGenerationService service;
  const std::vector<TokenId> prompt = {5, 6};
  const std::vector<TokenLogprob> logprobs = {{.token = 6, .logprob = -2.0f}};
  v1::Started message;
  ToProto({.prompt_tokens = 2,
           .cached_tokens = 1,
           .kv_source = KvSource::kPrefixCache,
           .queue = std::chrono::microseconds(4),
           .prefill = std::chrono::microseconds(5),
           .prompt = prompt,
           .prompt_text = "pq",
           .prompt_logprobs = logprobs},
          service, message);
  EXPECT_EQ(message.prompt_tokens(), 2);
  EXPECT_EQ(message.cached_tokens(), 1);
  EXPECT_EQ(message.kv_source(), v1::KV_SOURCE_PREFIX_CACHE);
  EXPECT_EQ(message.queue_us(), 4);
  EXPECT_EQ(message.prefill_us(), 5);
  EXPECT_THAT(message.prompt_token_ids(), testing::ElementsAre(5, 6));
  EXPECT_EQ(message.prompt_text(), "pq");
  ASSERT_EQ(message.prompt_logprobs_size(), 1);
  EXPECT_EQ(message.prompt_logprobs(0).token_id(), 6);
  EXPECT_EQ(message.prompt_logprobs(0).logprob(), -2.0f);
}

TEST(ProtoConversionTest, ChoicesStandInTheirOrderWhateverOrderTheyEndIn) {
  v1::Finished message;
  for (const int32_t choice : {2, 0, 1}) {
    ToProto({.choice = choice,
             .finish_reason = FinishReason::kStop,
             .stop_cause = StopCause::kStopString,
             .stop_text = "s" + std::to_string(choice),
             .completion_tokens = 10 + choice},
            ChoiceOf(message, choice));
  }
  ASSERT_EQ(message.choices_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(message.choices(i).choice(), i);
    EXPECT_EQ(message.choices(i).finish_reason(), v1::FINISH_REASON_STOP);
    EXPECT_EQ(message.choices(i).stop_cause(), v1::STOP_CAUSE_STOP_STRING);
    EXPECT_EQ(message.choices(i).stop_text(), "s" + std::to_string(i));
    EXPECT_EQ(message.choices(i).completion_tokens(), 10 + i);
  }
}

TEST(ProtoConversionTest, TheLoadIsToldFieldByField) {
  v1::GetLoadResponse message;
  ToProto({.ready = true,
           .running = 1,
           .waiting = 2,
           .waiting_tokens = 3,
           .max_sequences = 4,
           .max_waiting = 5,
           .max_waiting_tokens = 6,
           .pages_total = 7,
           .pages_free = 8,
           .pages_cached = 9,
           .busy_share = 0.5,
           .predicted_first_token = std::chrono::milliseconds(10)},
          message);
  EXPECT_EQ(message.ShortDebugString(),
            "ready: true running: 1 waiting: 2 waiting_tokens: 3 max_sequences: 4 "
            "max_waiting: 5 max_waiting_tokens: 6 kv_pages_total: 7 kv_pages_free: 8 "
            "kv_pages_cached: 9 busy_share: 0.5 predicted_first_token_us: 10000");
}

TEST(ProtoConversionTest, AChatAsksForAnAnswerUnlessItSaysNo) {
  v1::TokenizeRequest message;
  message.mutable_chat();
  EXPECT_TRUE(std::get<ChatInput>(*ToPrompt(message)).add_generation_prompt);
  message.mutable_chat()->set_add_generation_prompt(false);
  EXPECT_FALSE(std::get<ChatInput>(*ToPrompt(message)).add_generation_prompt);
}

TEST(ProtoConversionTest, EveryEndHasItsNameInTheProto) {
  for (const FinishReason reason :
       {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled}) {
    Completion completion;
    completion.finish_reason = reason;
    v1::Finished message;
    ToProto(completion, message);
    std::string name = v1::FinishReason_Name(message.finish_reason());
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    EXPECT_EQ(name, "finish_reason_" + std::string(FinishReasonName(reason)));
  }
  for (const StopCause cause :
       {StopCause::kEndToken, StopCause::kStopToken, StopCause::kStopString,
        StopCause::kMaxTokens, StopCause::kContext, StopCause::kPool}) {
    Completion completion;
    completion.stop_cause = cause;
    v1::Finished message;
    ToProto(completion, message);
    std::string name = v1::StopCause_Name(message.stop_cause());
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    EXPECT_EQ(name, "stop_cause_" + std::string(StopCauseName(cause)));
  }
}

TEST(ProtoConversionTest, TimesAreInMicroseconds) {
  Completion completion;
  completion.timings = {.queue = std::chrono::microseconds(1),
                        .prefill = std::chrono::microseconds(2),
                        .decode = std::chrono::seconds(3),
                        .max_gap = std::chrono::nanoseconds(4999)};
  v1::Finished message;
  ToProto(completion, message);
  EXPECT_EQ(message.timings().queue_us(), 1);
  EXPECT_EQ(message.timings().prefill_us(), 2);
  EXPECT_EQ(message.timings().decode_us(), 3'000'000);
  EXPECT_EQ(message.timings().max_gap_us(), 4);
}

}  // namespace
}  // namespace renga
