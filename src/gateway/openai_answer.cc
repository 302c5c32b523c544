#include "gateway/openai_answer.h"

#include <algorithm>
#include <utility>

namespace renga {
namespace {

std::string_view FinishReasonText(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_CANCELLED:
      return "cancelled";
    default:
      return "stop";
  }
}

std::string_view StopCauseText(v1::StopCause cause) {
  switch (cause) {
    case v1::STOP_CAUSE_END_TOKEN:
      return "end_token";
    case v1::STOP_CAUSE_STOP_TOKEN:
      return "stop_token";
    case v1::STOP_CAUSE_STOP_STRING:
      return "stop_string";
    case v1::STOP_CAUSE_MAX_TOKENS:
      return "max_tokens";
    case v1::STOP_CAUSE_CONTEXT:
      return "context";
    case v1::STOP_CAUSE_POOL:
      return "pool";
    default:
      return "";
  }
}

void WriteHead(JsonWriter& json, const AnswerHead& head, std::string_view object,
               std::string_view model) {
  json.Field("id", head.id).Field("object", object).Field("created", head.created);
  json.Field("model", model);
  head.fingerprint.empty() ? json.NullField("system_fingerprint")
                           : json.Field("system_fingerprint", head.fingerprint);
}

void WriteFinish(JsonWriter& json, const v1::ChoiceFinished& finished) {
  json.Field("finish_reason", FinishReasonText(finished.finish_reason()));
  const std::string_view cause = StopCauseText(finished.stop_cause());
  if (!cause.empty()) json.Field("stop_cause", cause);
  if (!finished.stop_text().empty()) json.Field("stop_text", finished.stop_text());
}

void WriteUsage(JsonWriter& json, const v1::Usage& usage) {
  json.Key("usage").BeginObject();
  json.Field("prompt_tokens", usage.prompt_tokens());
  json.Field("completion_tokens", usage.completion_tokens());
  json.Field("total_tokens", usage.prompt_tokens() + usage.completion_tokens());
  json.Key("prompt_tokens_details").BeginObject();
  json.Field("cached_tokens", usage.cached_tokens());
  json.EndObject().EndObject();
}

double Milliseconds(int64_t microseconds) {
  return static_cast<double>(microseconds) / 1000.0;
}

void WriteTimings(JsonWriter& json, const v1::Timings& timings) {
  json.Key("timings").BeginObject();
  json.Field("queue_ms", Milliseconds(timings.queue_us()));
  json.Field("prefill_ms", Milliseconds(timings.prefill_us()));
  json.Field("decode_ms", Milliseconds(timings.decode_us()));
  json.Field("max_gap_ms", Milliseconds(timings.max_gap_us()));
  json.EndObject();
}

void AddUsage(const v1::Usage& part, v1::Usage& sum) {
  sum.set_prompt_tokens(sum.prompt_tokens() + part.prompt_tokens());
  sum.set_cached_tokens(sum.cached_tokens() + part.cached_tokens());
  sum.set_completion_tokens(sum.completion_tokens() + part.completion_tokens());
}

// How choice `number` ended: servers may leave out the list for a single one.
v1::ChoiceFinished FinishOf(const v1::Finished& finished, int32_t number) {
  for (const v1::ChoiceFinished& choice : finished.choices()) {
    if (choice.choice() == number) return choice;
  }
  v1::ChoiceFinished single;
  single.set_choice(number);
  single.set_finish_reason(finished.finish_reason());
  single.set_stop_cause(finished.stop_cause());
  single.set_stop_text(finished.stop_text());
  return single;
}

// The tokens of an echoed prompt. The first has no log-probability, and so no bytes of
// its own: they are what the others leave of the text.
void AddPrompt(const v1::Started& started, CompletionLogprobs& logprobs) {
  if (started.prompt_token_ids().empty()) return;
  size_t rest = 0;
  for (const v1::TokenLogprob& token : started.prompt_logprobs()) {
    rest += token.token().size();
  }
  const std::string& text = started.prompt_text();
  const size_t first = rest <= text.size() ? text.size() - rest : 0;
  logprobs.AddFirst(std::string_view(text).substr(0, first), started.prompt_token_ids(0));
  for (const v1::TokenLogprob& token : started.prompt_logprobs()) logprobs.Add(token);
}

}  // namespace

// ---- Whole answers -------------------------------------------------------------------

bool WholeAnswer::Add(size_t prompt, v1::GenerateUnaryResponse answer) {
  answers_[prompt] = std::move(answer);
  return ++added_ == answers_.size();
}

void WholeAnswer::WriteLogprobs(JsonWriter& json, const v1::GenerateUnaryResponse& answer,
                                const TokenLogprobs& tokens) const {
  if (!shape_.logprobs) {
    json.NullField("logprobs");
    return;
  }
  json.Key("logprobs");
  if (shape_.chat) return WriteChatLogprobs(json, tokens);
  CompletionLogprobs logprobs;
  if (shape_.echo) AddPrompt(answer.started(), logprobs);
  for (const v1::TokenLogprob& token : tokens) logprobs.Add(token);
  logprobs.WriteAdded(json);
}

void WholeAnswer::WriteChoice(JsonWriter& json, size_t prompt, int32_t number) const {
  const v1::GenerateUnaryResponse& answer = answers_[prompt];
  const std::string* text = &answer.text();
  const TokenLogprobs* logprobs = &answer.logprobs();
  for (const v1::Choice& choice : answer.more_choices()) {
    if (number == 0 || choice.choice() != number) continue;
    text = &choice.text();
    logprobs = &choice.logprobs();
  }
  json.BeginObject();
  json.Field("index",
             prompt * static_cast<size_t>(shape_.n) + static_cast<size_t>(number));
  if (shape_.chat) {
    json.Key("message").BeginObject();
    json.Field("role", "assistant").Field("content", *text).NullField("refusal");
    json.EndObject();
  } else {
    json.Field("text", shape_.echo ? answer.started().prompt_text() + *text : *text);
  }
  WriteLogprobs(json, answer, *logprobs);
  WriteFinish(json, FinishOf(answer.finished(), number));
  if (shape_.prompt_logprobs && number == 0) {
    json.Key("prompt_logprobs");
    WritePromptLogprobs(json, answer.started().prompt_logprobs());
  }
  json.EndObject();
}

std::string WholeAnswer::Body() const {
  JsonWriter json;
  json.BeginObject();
  WriteHead(json, head_, shape_.chat ? "chat.completion" : "text_completion",
            answers_[0].started().model());
  json.Key("choices").BeginArray();
  v1::Usage usage;
  for (size_t prompt = 0; prompt < answers_.size(); ++prompt) {
    for (int32_t choice = 0; choice < shape_.n; ++choice) {
      WriteChoice(json, prompt, choice);
    }
    AddUsage(answers_[prompt].finished().usage(), usage);
  }
  json.EndArray();
  WriteUsage(json, usage);
  if (answers_.size() == 1) WriteTimings(json, answers_[0].finished().timings());
  json.EndObject();
  return std::move(json).Take();
}

// ---- Streams -------------------------------------------------------------------------

StreamedAnswer::StreamedAnswer(const AnswerShape& shape, AnswerHead head, size_t prompts)
    : shape_(shape),
      head_(std::move(head)),
      prompts_(prompts),
      choices_(prompts * static_cast<size_t>(shape.n)) {}

size_t StreamedAnswer::Index(size_t prompt, int32_t choice) const {
  const int32_t within = std::clamp(choice, 0, shape_.n - 1);
  return prompt * static_cast<size_t>(shape_.n) + static_cast<size_t>(within);
}

JsonWriter StreamedAnswer::BeginChunk(size_t index) const {
  JsonWriter json;
  json.BeginObject();
  WriteHead(json, head_, shape_.chat ? "chat.completion.chunk" : "text_completion",
            model_);
  json.Key("choices").BeginArray().BeginObject().Field("index", index);
  return json;
}

std::string StreamedAnswer::EndChunk(JsonWriter json) const {
  if (shape_.include_usage) json.NullField("usage");
  json.EndObject();
  return SseEvent(std::move(json).Take());
}

bool StreamedAnswer::HasLogprobs(const Choice& choice) const {
  return shape_.chat ? !choice.logprobs.empty() : !choice.completion_logprobs.empty();
}

void StreamedAnswer::WriteLogprobs(JsonWriter& json, Choice& choice) const {
  if (!shape_.logprobs || !HasLogprobs(choice)) {
    json.NullField("logprobs");
    return;
  }
  json.Key("logprobs");
  if (!shape_.chat) return choice.completion_logprobs.WriteAdded(json);
  WriteChatLogprobs(json, choice.logprobs);
  choice.logprobs.Clear();
}

std::string StreamedAnswer::OnEvent(size_t prompt, v1::GenerateResponse& event) {
  switch (event.event_case()) {
    case v1::GenerateResponse::kStarted:
      return OnStarted(prompt, event.started());
    case v1::GenerateResponse::kChunk:
      return OnChunk(prompt, *event.mutable_chunk());
    case v1::GenerateResponse::kChoiceFinished:
      return OnChoiceFinished(prompt, event.choice_finished());
    case v1::GenerateResponse::kFinished:
      return OnFinished(prompt, event.finished());
    case v1::GenerateResponse::EVENT_NOT_SET:
      break;
  }
  return "";  // An event of a newer server.
}

// The first event of each choice: chat's role, or the echoed prompt.
std::string StreamedAnswer::OnStarted(size_t prompt, const v1::Started& started) {
  model_ = started.model();
  std::string events;
  for (int32_t number = 0; number < shape_.n; ++number) {
    const size_t index = Index(prompt, number);
    const bool with_prompt = shape_.prompt_logprobs && number == 0;
    if (!shape_.chat && !shape_.echo && !with_prompt) continue;
    JsonWriter json = BeginChunk(index);
    if (shape_.chat) {
      json.Key("delta").BeginObject();
      json.Field("role", "assistant").Field("content", "").EndObject();
    } else {
      if (shape_.echo) AddPrompt(started, choices_[index].completion_logprobs);
      json.Field("text", shape_.echo ? started.prompt_text() : "");
    }
    WriteLogprobs(json, choices_[index]);
    json.NullField("finish_reason");
    if (with_prompt) {
      json.Key("prompt_logprobs");
      WritePromptLogprobs(json, started.prompt_logprobs());
    }
    json.EndObject().EndArray();
    events += EndChunk(std::move(json));
  }
  return events;
}

std::string StreamedAnswer::OnChunk(size_t prompt, v1::Chunk& chunk) {
  const size_t index = Index(prompt, chunk.choice());
  Choice& choice = choices_[index];
  for (v1::TokenLogprob& token : *chunk.mutable_logprobs()) {
    if (!shape_.chat) choice.completion_logprobs.Add(token);
    if (shape_.chat) *choice.logprobs.Add() = std::move(token);
  }
  if (chunk.text().empty()) return "";
  JsonWriter json = BeginChunk(index);
  if (shape_.chat) {
    json.Key("delta").BeginObject().Field("content", chunk.text()).EndObject();
  } else {
    json.Field("text", chunk.text());
  }
  WriteLogprobs(json, choice);
  json.NullField("finish_reason").EndObject().EndArray();
  return EndChunk(std::move(json));
}

// The last choice waits for Finished, which follows at once and has the timings.
std::string StreamedAnswer::OnChoiceFinished(size_t prompt,
                                             const v1::ChoiceFinished& finished) {
  const size_t first = Index(prompt, 0);
  const auto open =
      std::count_if(choices_.begin() + static_cast<std::ptrdiff_t>(first),
                    choices_.begin() + static_cast<std::ptrdiff_t>(first) + shape_.n,
                    [](const Choice& choice) { return !choice.finished; });
  return open > 1 ? FinishChoice(prompt, finished, nullptr) : "";
}

std::string StreamedAnswer::FinishChoice(size_t prompt,
                                         const v1::ChoiceFinished& finished,
                                         const v1::Timings* timings) {
  const size_t index = Index(prompt, finished.choice());
  Choice& choice = choices_[index];
  if (std::exchange(choice.finished, true)) return "";
  JsonWriter json = BeginChunk(index);
  shape_.chat ? json.Key("delta").BeginObject().EndObject() : json.Field("text", "");
  WriteLogprobs(json, choice);
  WriteFinish(json, finished);
  json.EndObject().EndArray();
  if (timings != nullptr) WriteTimings(json, *timings);
  return EndChunk(std::move(json));
}

std::string StreamedAnswer::OnFinished(size_t prompt, const v1::Finished& finished) {
  int32_t last_open = -1;
  for (int32_t number = 0; number < shape_.n; ++number) {
    if (!choices_[Index(prompt, number)].finished) last_open = number;
  }
  std::string events;
  for (int32_t number = 0; number <= last_open; ++number) {
    const bool with_timings = prompts_ == 1 && number == last_open;
    events += FinishChoice(prompt, FinishOf(finished, number),
                           with_timings ? &finished.timings() : nullptr);
  }
  AddUsage(finished.usage(), usage_);
  ++finished_;
  return events;
}

std::string StreamedAnswer::End() const {
  std::string events;
  if (shape_.include_usage) {
    JsonWriter json;
    json.BeginObject();
    WriteHead(json, head_, shape_.chat ? "chat.completion.chunk" : "text_completion",
              model_);
    json.Key("choices").BeginArray().EndArray();
    WriteUsage(json, usage_);
    json.EndObject();
    events = SseEvent(std::move(json).Take());
  }
  events += kSseDone;
  return events;
}

std::string SseEvent(std::string_view data) {
  std::string event = "data: ";
  event += data;
  event += "\n\n";
  return event;
}

// ---- Models --------------------------------------------------------------------------

std::string ModelEntry(const v1::GetModelResponse& model, int64_t created) {
  JsonWriter json;
  json.BeginObject();
  json.Field("id", model.name()).Field("object", "model").Field("created", created);
  json.Field("owned_by", "renga");
  json.Field("max_model_len", model.context_length());
  json.Field("architecture", model.architecture());
  json.Field("has_chat_template", model.has_chat_template());
  json.Field("backend", model.backend());
  json.Field("numerics_id", model.numerics_id());
  json.EndObject();
  return std::move(json).Take();
}

std::string ModelList(const v1::GetModelResponse& model, int64_t created) {
  JsonWriter json;
  json.BeginObject().Field("object", "list").Key("data").BeginArray();
  json.Raw(ModelEntry(model, created)).EndArray().EndObject();
  return std::move(json).Take();
}

}  // namespace renga
