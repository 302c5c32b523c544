#include "transport/proto_conversion.h"

#include <chrono>
#include <utility>

namespace renga {
namespace {

int64_t Microseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

ChatInput ToChat(v1::Chat& message) {
  ChatInput chat;
  for (v1::ChatMessage& entry : *message.mutable_messages()) {
    chat.messages.push_back({.role = std::move(*entry.mutable_role()),
                             .content = std::move(*entry.mutable_content())});
  }
  if (message.has_add_generation_prompt()) {
    chat.add_generation_prompt = message.add_generation_prompt();
  }
  return chat;
}

SamplingParams ToSampling(const v1::SamplingParams& message) {
  SamplingParams sampling;
  if (message.has_temperature()) sampling.temperature = message.temperature();
  if (message.has_top_k()) sampling.top_k = message.top_k();
  if (message.has_top_p()) sampling.top_p = message.top_p();
  if (message.has_min_p()) sampling.min_p = message.min_p();
  if (message.has_seed()) sampling.seed = message.seed();
  return sampling;
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kCancelled:
      return v1::FINISH_REASON_CANCELLED;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

v1::StopCause ToProto(StopCause cause) {
  switch (cause) {
    case StopCause::kNone:
      return v1::STOP_CAUSE_UNSPECIFIED;
    case StopCause::kEndToken:
      return v1::STOP_CAUSE_END_TOKEN;
    case StopCause::kStopToken:
      return v1::STOP_CAUSE_STOP_TOKEN;
    case StopCause::kStopString:
      return v1::STOP_CAUSE_STOP_STRING;
    case StopCause::kMaxTokens:
      return v1::STOP_CAUSE_MAX_TOKENS;
    case StopCause::kContext:
      return v1::STOP_CAUSE_CONTEXT;
    case StopCause::kPool:
      return v1::STOP_CAUSE_POOL;
  }
  return v1::STOP_CAUSE_UNSPECIFIED;
}

}  // namespace

StatusOr<GenerateRequest> ToGenerateRequest(v1::GenerateRequest& message) {
  GenerateRequest request;
  switch (message.input_case()) {
    case v1::GenerateRequest::kText:
      request.prompt = std::move(*message.mutable_text());
      break;
    case v1::GenerateRequest::kTokenIds: {
      const auto& ids = message.token_ids().ids();
      request.prompt = std::vector<TokenId>(ids.begin(), ids.end());
      break;
    }
    case v1::GenerateRequest::kChat:
      request.prompt = ToChat(*message.mutable_chat());
      break;
    case v1::GenerateRequest::INPUT_NOT_SET:
      return InvalidArgument("input", "one of text, token_ids and chat is required");
  }
  request.model = std::move(*message.mutable_model());
  request.sampling = ToSampling(message.sampling());
  if (message.has_max_tokens()) request.max_tokens = message.max_tokens();
  for (std::string& stop : *message.mutable_stop()) {
    request.stop.push_back(std::move(stop));
  }
  request.stop_token_ids.assign(message.stop_token_ids().begin(),
                                message.stop_token_ids().end());
  request.ignore_end_token = message.ignore_end_token();
  return request;
}

StatusOr<PromptInput> ToPrompt(v1::TokenizeRequest& message) {
  switch (message.input_case()) {
    case v1::TokenizeRequest::kText:
      return PromptInput(std::move(*message.mutable_text()));
    case v1::TokenizeRequest::kChat:
      return PromptInput(ToChat(*message.mutable_chat()));
    case v1::TokenizeRequest::INPUT_NOT_SET:
      break;
  }
  return InvalidArgument("input", "one of text and chat is required");
}

void ToProto(const StartInfo& info, v1::Started& message) {
  message.set_prompt_tokens(info.prompt_tokens);
  message.set_cached_tokens(info.cached_tokens);
  message.set_kv_source(v1::KV_SOURCE_COMPUTED);
  message.set_queue_us(Microseconds(info.queue));
  message.set_prefill_us(Microseconds(info.prefill));
}

void ToProto(const TokenChunk& chunk, v1::Chunk& message) {
  message.set_choice(chunk.choice);
  message.set_text(chunk.text.data(), chunk.text.size());
  message.mutable_token_ids()->Add(chunk.tokens.begin(), chunk.tokens.end());
}

void ToProto(const Completion& completion, v1::Finished& message) {
  message.set_finish_reason(ToProto(completion.finish_reason));
  message.set_stop_cause(ToProto(completion.stop_cause));
  message.set_stop_text(completion.stop_text);
  v1::Usage& usage = *message.mutable_usage();
  usage.set_prompt_tokens(completion.usage.prompt_tokens);
  usage.set_cached_tokens(completion.usage.cached_tokens);
  usage.set_completion_tokens(completion.usage.completion_tokens);
  v1::Timings& timings = *message.mutable_timings();
  timings.set_queue_us(Microseconds(completion.timings.queue));
  timings.set_prefill_us(Microseconds(completion.timings.prefill));
  timings.set_decode_us(Microseconds(completion.timings.decode));
  timings.set_max_gap_us(Microseconds(completion.timings.max_gap));
}

void ToProto(const ModelInfo& info, v1::GetModelResponse& message) {
  message.set_name(info.name);
  message.set_architecture(info.architecture);
  message.set_context_length(info.context_length);
  message.set_vocab_size(info.vocab_size);
  message.set_has_chat_template(info.has_chat_template);
  message.set_backend(info.backend);
  message.set_numerics_id(info.numerics_id);
  message.mutable_end_token_ids()->Add(info.end_token_ids.begin(),
                                       info.end_token_ids.end());
  if (info.bos_token_id >= 0) message.set_bos_token_id(info.bos_token_id);
}

}  // namespace renga
