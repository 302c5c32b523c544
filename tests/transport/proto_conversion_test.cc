#include "transport/proto_conversion.h"

#include <gmock/gmock.h>

namespace renga {
namespace {

TEST(ProtoConversionTest, AbsentFieldsTakeTheDefaultsOfTheService) {
  v1::GenerateRequest message;
  message.set_text("");
  const auto request = ToGenerateRequest(message);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(std::get<std::string>(request->prompt), "");  // An empty prompt is a prompt.
  EXPECT_EQ(request->sampling.temperature, SamplingParams{}.temperature);
  EXPECT_EQ(request->sampling.top_k, SamplingParams{}.top_k);
  EXPECT_EQ(request->sampling.top_p, SamplingParams{}.top_p);
  EXPECT_EQ(request->sampling.min_p, SamplingParams{}.min_p);
  EXPECT_EQ(request->sampling.seed, std::nullopt);
  EXPECT_EQ(request->max_tokens, std::nullopt);
  EXPECT_FALSE(request->ignore_end_token);
}

TEST(ProtoConversionTest, AZeroThatIsSetIsNotADefault) {
  v1::GenerateRequest message;
  message.set_text("x");
  message.mutable_sampling()->set_temperature(0);
  message.mutable_sampling()->set_top_p(0);
  message.mutable_sampling()->set_seed(0);
  message.set_max_tokens(0);
  const auto request = ToGenerateRequest(message);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->sampling.temperature, 0.0f);
  EXPECT_EQ(request->sampling.top_p, 0.0f);
  EXPECT_EQ(request->sampling.seed, 0u);
  EXPECT_EQ(request->max_tokens, 0);
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
