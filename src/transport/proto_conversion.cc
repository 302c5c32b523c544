#include "transport/proto_conversion.h"

#include <chrono>
#include <string>
#include <utility>

namespace renga {
namespace {

constexpr int64_t kMaxDeadlineMs = 86'400'000;  // A day.

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
  if (message.has_typical_p()) sampling.typical_p = message.typical_p();
  if (message.has_repetition_penalty()) {
    sampling.repetition_penalty = message.repetition_penalty();
  }
  if (message.has_presence_penalty()) {
    sampling.presence_penalty = message.presence_penalty();
  }
  if (message.has_frequency_penalty()) {
    sampling.frequency_penalty = message.frequency_penalty();
  }
  sampling.logit_bias.reserve(static_cast<size_t>(message.logit_bias_size()));
  for (const v1::LogitBias& entry : message.logit_bias()) {
    sampling.logit_bias.push_back({.token = entry.token_id(), .bias = entry.bias()});
  }
  return sampling;
}

StatusOr<PromptInput> ToPrompt(v1::GenerateRequest& message) {
  switch (message.input_case()) {
    case v1::GenerateRequest::kText:
      return PromptInput(std::move(*message.mutable_text()));
    case v1::GenerateRequest::kTokenIds: {
      const auto& ids = message.token_ids().ids();
      return PromptInput(std::vector<TokenId>(ids.begin(), ids.end()));
    }
    case v1::GenerateRequest::kChat:
      return PromptInput(ToChat(*message.mutable_chat()));
    case v1::GenerateRequest::INPUT_NOT_SET:
      break;
  }
  return InvalidArgument("input", "one of text, token_ids and chat is required");
}

StatusOr<Priority> ToPriority(v1::Priority priority) {
  switch (priority) {
    case v1::PRIORITY_HIGH:
      return Priority::kHigh;
    case v1::PRIORITY_UNSPECIFIED:
    case v1::PRIORITY_NORMAL:
      return Priority::kNormal;
    case v1::PRIORITY_LOW:
      return Priority::kLow;
    default:  // Any number can come over the wire.
      return InvalidArgument("priority", "has no value " + std::to_string(priority));
  }
}

v1::KvSource ToProto(KvSource source) {
  switch (source) {
    case KvSource::kComputed:
      return v1::KV_SOURCE_COMPUTED;
    case KvSource::kPrefixCache:
      return v1::KV_SOURCE_PREFIX_CACHE;
  }
  return v1::KV_SOURCE_UNSPECIFIED;
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

StatusOr<GenerateRequest> ToGenerateRequest(v1::GenerateRequest& message,
                                            TimePoint arrival) {
  if (message.has_best_of()) {
    return InvalidArgument("best_of", "is not supported; ask for n");
  }
  const StatusOr<Priority> priority = ToPriority(message.priority());
  if (!priority.ok()) return priority.status();
  StatusOr<PromptInput> prompt = ToPrompt(message);
  if (!prompt.ok()) return prompt.status();

  GenerateRequest request;
  request.arrival = arrival;
  if (message.has_deadline_ms()) {
    if (message.deadline_ms() < 1 || message.deadline_ms() > kMaxDeadlineMs) {
      return InvalidArgument("deadline_ms", "must be in [1, 86400000]");
    }
    request.deadline = arrival + std::chrono::milliseconds(message.deadline_ms());
  }
  request.prompt = *std::move(prompt);
  request.priority = *priority;
  request.model = std::move(*message.mutable_model());
  request.sampling = ToSampling(message.sampling());
  if (message.has_max_tokens()) request.max_tokens = message.max_tokens();
  for (std::string& stop : *message.mutable_stop()) {
    request.stop.push_back(std::move(stop));
  }
  request.stop_token_ids.assign(message.stop_token_ids().begin(),
                                message.stop_token_ids().end());
  request.ignore_end_token = message.ignore_end_token();
  request.min_tokens = message.min_tokens();
  if (message.has_n()) request.n = message.n();
  if (message.has_logprobs()) request.logprobs = message.logprobs();
  if (message.has_prompt_logprobs()) request.prompt_logprobs = message.prompt_logprobs();
  request.echo = message.echo();
  request.cache_salt = std::move(*message.mutable_cache_salt());
  request.use_prefix_cache = !message.no_cache();
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

void AddToProto(std::span<const TokenLogprob> logprobs, GenerationService& service,
                google::protobuf::RepeatedPtrField<v1::TokenLogprob>& messages) {
  for (const TokenLogprob& logprob : logprobs) {
    v1::TokenLogprob& message = *messages.Add();
    message.set_token_id(logprob.token);
    message.set_logprob(logprob.logprob);
    message.set_token(std::string(service.TokenBytes(logprob.token)));
    for (const TopLogprob& top : logprob.top) {
      v1::TopLogprob& entry = *message.add_top();
      entry.set_token_id(top.token);
      entry.set_logprob(top.logprob);
      entry.set_token(std::string(service.TokenBytes(top.token)));
    }
  }
}

void ToProto(const StartInfo& info, GenerationService& service, v1::Started& message) {
  message.set_prompt_tokens(info.prompt_tokens);
  message.set_cached_tokens(info.cached_tokens);
  message.set_kv_source(ToProto(info.kv_source));
  message.set_queue_us(Microseconds(info.queue));
  message.set_prefill_us(Microseconds(info.prefill));
  message.mutable_prompt_token_ids()->Add(info.prompt.begin(), info.prompt.end());
  message.set_prompt_text(info.prompt_text.data(), info.prompt_text.size());
  AddToProto(info.prompt_logprobs, service, *message.mutable_prompt_logprobs());
}

void ToProto(const TokenChunk& chunk, GenerationService& service, v1::Chunk& message) {
  message.set_choice(chunk.choice);
  message.set_text(chunk.text.data(), chunk.text.size());
  message.mutable_token_ids()->Add(chunk.tokens.begin(), chunk.tokens.end());
  AddToProto(chunk.logprobs, service, *message.mutable_logprobs());
}

void ToProto(const ChoiceEnd& end, v1::ChoiceFinished& message) {
  message.set_choice(end.choice);
  message.set_finish_reason(ToProto(end.finish_reason));
  message.set_stop_cause(ToProto(end.stop_cause));
  message.set_stop_text(end.stop_text);
  message.set_completion_tokens(end.completion_tokens);
}

v1::ChoiceFinished& ChoiceOf(v1::Finished& message, int32_t choice) {
  while (message.choices_size() <= choice) {
    message.add_choices()->set_choice(message.choices_size() - 1);
  }
  return *message.mutable_choices(choice);
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

void ToProto(const LoadInfo& info, v1::GetLoadResponse& message) {
  message.set_ready(info.ready);
  message.set_running(info.running);
  message.set_waiting(info.waiting);
  message.set_waiting_tokens(info.waiting_tokens);
  message.set_max_sequences(info.max_sequences);
  message.set_max_waiting(info.max_waiting);
  message.set_max_waiting_tokens(info.max_waiting_tokens);
  message.set_kv_pages_total(info.pages_total);
  message.set_kv_pages_free(info.pages_free);
  message.set_kv_pages_cached(info.pages_cached);
  message.set_busy_share(info.busy_share);
  message.set_predicted_first_token_us(Microseconds(info.predicted_first_token));
}

}  // namespace renga
