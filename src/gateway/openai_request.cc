// One function per group of fields, each reading from a FieldReader.

#include "gateway/openai_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/status_macros.h"
#include "gateway/json_reader.h"

namespace renga {
namespace {

namespace json = boost::json;

// ---- Lists ---------------------------------------------------------------------------

Status ReadTokenIds(const json::array& list, const std::string& field,
                    google::protobuf::RepeatedField<int32_t>& ids) {
  ids.Reserve(static_cast<int>(list.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    RENGA_ASSIGN_OR_RETURN(const int32_t id, ReadTokenId(list[i], ElementName(field, i)));
    ids.Add(id);
  }
  return OkStatus();
}

Status CheckSize(const json::array& list, size_t most, const std::string& field) {
  if (list.size() <= most) return OkStatus();
  return InvalidArgument(field, "has " + std::to_string(list.size()) +
                                    " entries; at most " + std::to_string(most));
}

// A string, or a list of them.
Status ReadStop(const json::value& value, v1::GenerateRequest& request) {
  if (value.is_string()) {
    request.add_stop(std::string(value.get_string()));
    return OkStatus();
  }
  if (!value.is_array()) {
    return InvalidArgument("stop", "must be a string or a list of strings");
  }
  const json::array& list = value.get_array();
  RENGA_RETURN_IF_ERROR(CheckSize(list, kMaxStops, "stop"));
  for (size_t i = 0; i < list.size(); ++i) {
    RENGA_ASSIGN_OR_RETURN(*request.add_stop(),
                           ReadString(list[i], ElementName("stop", i)));
  }
  return OkStatus();
}

// {"TOKEN ID": bias, ...}
Status ReadLogitBias(const json::value& value, v1::SamplingParams& sampling) {
  if (!value.is_object()) {
    return InvalidArgument("logit_bias", "must be an object from token ids to numbers");
  }
  for (const auto& entry : value.get_object()) {
    const std::string_view key(entry.key().data(), entry.key().size());
    const std::string field = "logit_bias." + std::string(key.substr(0, 32));
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool whole = error == std::errc() && end == key.data() + key.size();
    if (!whole || id < 0) return InvalidArgument(field, "is no token id of this model");
    RENGA_ASSIGN_OR_RETURN(const float bias, ReadFloat(entry.value(), field));
    v1::LogitBias& added = *sampling.add_logit_bias();
    added.set_token_id(id);
    added.set_bias(bias);
  }
  return OkStatus();
}

// All of 64 bits. What is beyond is refused: it would be taken for another seed.
Status ReadSeed(const json::value& value, v1::SamplingParams& sampling) {
  if (value.is_uint64()) {
    sampling.set_seed(value.get_uint64());
    return OkStatus();
  }
  RENGA_ASSIGN_OR_RETURN(const int64_t seed, ReadInteger(value, "seed"));
  if (seed < 0) return InvalidArgument("seed", "must not be negative");
  if (value.is_double() && value.get_double() >= 0x1p63) {
    return InvalidArgument("seed", "must have at most 64 bits");
  }
  sampling.set_seed(static_cast<uint64_t>(seed));
  return OkStatus();
}

// ---- Messages ------------------------------------------------------------------------

// Text, or a list of text parts, which are joined as they are.
StatusOr<std::string> ReadContent(const json::value& value, const std::string& field,
                                  bool lenient) {
  if (value.is_string()) return std::string(value.get_string());
  if (!value.is_array()) {
    return InvalidArgument(field, "must be a string or a list of text parts");
  }
  std::string text;
  const json::array& parts = value.get_array();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string name = ElementName(field, i);
    if (!parts[i].is_object()) return InvalidArgument(name, "must be an object");
    FieldReader part(parts[i].get_object(), name + '.');
    const std::optional<std::string> type = part.String("type");
    if (type != "text")
      part.Refuse("type", "must be \"text\": other parts are not supported");
    const std::optional<std::string> piece = part.String("text");
    if (!piece) part.Refuse("text", "is required");
    RENGA_RETURN_IF_ERROR(part.Finish(lenient));
    text += *piece;
  }
  return text;
}

Status ReadMessage(const json::value& value, const std::string& name, bool lenient,
                   v1::ChatMessage& message) {
  if (!value.is_object()) return InvalidArgument(name, "must be an object");
  FieldReader fields(value.get_object(), name + '.');
  std::optional<std::string> role = fields.String("role");
  if (!role) fields.Refuse("role", "is required");
  // Parts of OpenAI's messages that this server has not; null and empty ones are what a
  // client sends back that it got here.
  for (const std::string_view field :
       {"name", "refusal", "annotations", "audio", "function_call", "tool_calls",
        "tool_call_id", "reasoning_content"}) {
    fields.Unsupported(field);
  }
  const json::value* content = fields.Find("content");
  RENGA_RETURN_IF_ERROR(fields.Finish(lenient));
  if (role == "developer") role = "system";  // Its newer name.
  message.set_role(*role);
  if (content == nullptr) {
    if (role == "assistant") return OkStatus();
    return InvalidArgument(name + ".content", "is required");
  }
  RENGA_ASSIGN_OR_RETURN(*message.mutable_content(),
                         ReadContent(*content, name + ".content", lenient));
  return OkStatus();
}

Status ReadMessages(const json::value& value, bool lenient, v1::Chat& chat) {
  if (!value.is_array()) return InvalidArgument("messages", "must be a list of messages");
  const json::array& list = value.get_array();
  if (list.empty()) return InvalidArgument("messages", "is empty");
  RENGA_RETURN_IF_ERROR(CheckSize(list, kMaxMessages, "messages"));
  for (size_t i = 0; i < list.size(); ++i) {
    RENGA_RETURN_IF_ERROR(
        ReadMessage(list[i], ElementName("messages", i), lenient, *chat.add_messages()));
  }
  return OkStatus();
}

// "messages" and what belongs to it.
void ReadChat(FieldReader& fields, bool lenient, v1::Chat& chat) {
  const json::value* messages = fields.Find("messages");
  if (messages == nullptr) {
    fields.Refuse("messages", "is required");
  } else {
    fields.Keep(ReadMessages(*messages, lenient, chat));
  }
  if (const auto add = fields.Bool("add_generation_prompt")) {
    chat.set_add_generation_prompt(*add);
  }
}

// ---- Groups of fields ----------------------------------------------------------------

void ReadSampling(FieldReader& fields, v1::SamplingParams& sampling) {
  if (const auto v = fields.Float("temperature")) sampling.set_temperature(*v);
  if (const auto v = fields.Float("top_p")) sampling.set_top_p(*v);
  if (const auto v = fields.Float("min_p")) sampling.set_min_p(*v);
  if (const auto v = fields.Float("typical_p")) sampling.set_typical_p(*v);
  if (const auto v = fields.Integer32("top_k")) sampling.set_top_k(*v);
  if (const auto v = fields.Float("repetition_penalty")) {
    sampling.set_repetition_penalty(*v);
  }
  if (const auto v = fields.Float("presence_penalty")) sampling.set_presence_penalty(*v);
  if (const auto v = fields.Float("frequency_penalty")) {
    sampling.set_frequency_penalty(*v);
  }
  if (const json::value* seed = fields.Find("seed")) {
    fields.Keep(ReadSeed(*seed, sampling));
  }
  if (const json::value* bias = fields.Find("logit_bias")) {
    fields.Keep(ReadLogitBias(*bias, sampling));
  }
}

void ReadEnds(FieldReader& fields, AnswerShape& shape, v1::GenerateRequest& request) {
  const std::optional<int64_t> older = fields.Integer("max_tokens");
  const std::optional<int64_t> newer = fields.Integer("max_completion_tokens");
  if (older) request.set_max_tokens(*older);
  if (newer) request.set_max_tokens(*newer);
  shape.newer_limit = newer.has_value();
  if (const auto v = fields.Integer("min_tokens")) request.set_min_tokens(*v);
  if (const json::value* stop = fields.Find("stop")) {
    fields.Keep(ReadStop(*stop, request));
  }
  if (const json::value* ids = fields.Find("stop_token_ids")) {
    if (!ids->is_array()) {
      fields.Refuse("stop_token_ids", "must be a list of token ids");
    } else {
      fields.Keep(ReadTokenIds(ids->get_array(), "stop_token_ids",
                               *request.mutable_stop_token_ids()));
    }
  }
  request.set_ignore_end_token(fields.Bool("ignore_eos").value_or(false));
}

void ReadPriority(FieldReader& fields, v1::GenerateRequest& request) {
  const std::optional<std::string> name = fields.String("priority");
  if (!name) return;
  if (*name == "high") {
    request.set_priority(v1::PRIORITY_HIGH);
  } else if (*name == "normal") {
    request.set_priority(v1::PRIORITY_NORMAL);
  } else if (*name == "low") {
    request.set_priority(v1::PRIORITY_LOW);
  } else {
    fields.Refuse("priority", "must be \"high\", \"normal\" or \"low\"");
  }
}

void ReadServing(FieldReader& fields, v1::GenerateRequest& request) {
  request.set_model(fields.String("model").value_or(""));
  ReadPriority(fields, request);
  if (const auto v = fields.Integer("deadline_ms")) request.set_deadline_ms(*v);
  request.set_cache_salt(fields.String("cache_salt").value_or(""));
  request.set_no_cache(fields.Bool("no_cache").value_or(false));
  // OpenAI's name for its own abuse reports: it means nothing here, and is not kept.
  fields.String("user");
  fields.String("safety_identifier");
}

void ReadShape(FieldReader& fields, bool lenient, AnswerShape& shape) {
  shape.stream = fields.Bool("stream").value_or(false);
  shape.n = fields.Integer32("n").value_or(1);
  if (shape.n < 1 || shape.n > kMaxChoices) {
    fields.Refuse("n", "must be in [1, " + std::to_string(kMaxChoices) + ']');
  }
  if (const auto best_of = fields.Integer32("best_of"); best_of && *best_of != shape.n) {
    fields.Refuse("best_of", "is not supported: ask for n answers and choose");
  }
  const json::value* options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields.Refuse("stream_options", "must be an object");
  if (!shape.stream) {
    return fields.Refuse("stream_options", "is only for a stream: set \"stream\" too");
  }
  FieldReader inner(options->get_object(), "stream_options.");
  shape.include_usage = inner.Bool("include_usage").value_or(false);
  inner.Unsupported("include_obfuscation");
  fields.Keep(inner.Finish(lenient));
}

void RefuseUnsupported(FieldReader& fields) {
  for (const std::string_view field : {"tools",
                                       "functions",
                                       "function_call",
                                       "parallel_tool_calls",
                                       "audio",
                                       "prediction",
                                       "web_search_options",
                                       "reasoning_effort",
                                       "verbosity",
                                       "metadata",
                                       "store",
                                       "suffix",
                                       "session_id",
                                       "guided_json",
                                       "guided_regex",
                                       "guided_choice",
                                       "guided_grammar",
                                       "grammar",
                                       "json_schema",
                                       "prompt_cache_key",
                                       "prompt_cache_retention"}) {
    fields.Unsupported(field);
  }
  fields.Unsupported("tool_choice", "none");
  fields.Unsupported("service_tier", "auto");
  if (const json::value* modalities = fields.Find("modalities")) {
    if (!modalities->is_array() || modalities->get_array() != json::array{"text"}) {
      fields.Refuse("modalities", "must be [\"text\"]: others are not supported");
    }
  }
  if (const json::value* format = fields.Find("response_format")) {
    if (!format->is_object() || format->get_object() != json::object{{"type", "text"}}) {
      fields.Refuse("response_format",
                    "must have the type \"text\": others are not supported");
    }
  }
}

// What both forms have.
void ReadCommon(FieldReader& fields, bool lenient, CompletionRequest& parsed,
                v1::GenerateRequest& request) {
  ReadServing(fields, request);
  ReadSampling(fields, *request.mutable_sampling());
  ReadEnds(fields, parsed.shape, request);
  ReadShape(fields, lenient, parsed.shape);
  RefuseUnsupported(fields);
  request.set_n(parsed.shape.n);
  if (const auto v = fields.Integer32("prompt_logprobs")) {
    request.set_prompt_logprobs(*v);
    parsed.shape.prompt_logprobs = true;
  }
}

// ---- Prompts -------------------------------------------------------------------------

// Appends one request for each prompt; `base` has all the other fields.
class PromptList {
 public:
  PromptList(const v1::GenerateRequest& base, std::vector<v1::GenerateRequest>& requests)
      : base_(base), requests_(requests) {}

  // A text, a list of token ids, or a list of either.
  Status Read(const json::value& value) {
    if (value.is_string()) return Add(value, "prompt");
    if (!value.is_array()) {
      return InvalidArgument("prompt",
                             "must be a string, a list of token ids, or a list "
                             "of either");
    }
    const json::array& list = value.get_array();
    if (list.empty()) return InvalidArgument("prompt", "is empty");
    if (!list[0].is_string() && !list[0].is_array()) return Add(value, "prompt");
    if (list.size() > kMaxPrompts) {
      return InvalidArgument("prompt", "has " + std::to_string(list.size()) +
                                           " prompts; at most " +
                                           std::to_string(kMaxPrompts));
    }
    for (size_t i = 0; i < list.size(); ++i) {
      RENGA_RETURN_IF_ERROR(Add(list[i], ElementName("prompt", i)));
    }
    return OkStatus();
  }

 private:
  Status Add(const json::value& value, const std::string& field) {
    v1::GenerateRequest& request = requests_.emplace_back(base_);
    if (value.is_string()) {
      request.set_text(std::string(value.get_string()));
      return OkStatus();
    }
    if (!value.is_array()) {
      return InvalidArgument(field, "must be a string or a list of token ids");
    }
    if (value.get_array().empty()) return InvalidArgument(field, "is empty");
    return ReadTokenIds(value.get_array(), field,
                        *request.mutable_token_ids()->mutable_ids());
  }

  const v1::GenerateRequest& base_;
  std::vector<v1::GenerateRequest>& requests_;
};

}  // namespace

StatusOr<CompletionRequest> ParseChatRequest(std::string_view body, bool lenient) {
  RENGA_ASSIGN_OR_RETURN(const json::object object, ParseJson(body));
  CompletionRequest parsed;
  parsed.shape.chat = true;
  v1::GenerateRequest request;
  FieldReader fields(object);
  ReadChat(fields, lenient, *request.mutable_chat());
  ReadCommon(fields, lenient, parsed, request);
  parsed.shape.logprobs = fields.Bool("logprobs").value_or(false);
  const std::optional<int32_t> top = fields.Integer32("top_logprobs");
  if (top && !parsed.shape.logprobs) {
    fields.Refuse("top_logprobs", "needs \"logprobs\": true");
  }
  if (parsed.shape.logprobs) request.set_logprobs(top.value_or(0));
  RENGA_RETURN_IF_ERROR(fields.Finish(lenient));
  parsed.prompts.push_back(std::move(request));
  return parsed;
}

StatusOr<CompletionRequest> ParseCompletionRequest(std::string_view body, bool lenient) {
  RENGA_ASSIGN_OR_RETURN(const json::object object, ParseJson(body));
  CompletionRequest parsed;
  v1::GenerateRequest request;
  FieldReader fields(object);
  ReadCommon(fields, lenient, parsed, request);
  parsed.shape.echo = fields.Bool("echo").value_or(false);
  request.set_echo(parsed.shape.echo);
  if (const auto top = fields.Integer32("logprobs")) {
    parsed.shape.logprobs = true;
    request.set_logprobs(*top);
    // The echoed prompt's tokens have theirs too.
    if (parsed.shape.echo && !request.has_prompt_logprobs()) {
      request.set_prompt_logprobs(*top);
    }
  }
  const json::value* prompt = fields.Find("prompt");
  if (prompt == nullptr) fields.Refuse("prompt", "is required");
  RENGA_RETURN_IF_ERROR(fields.Finish(lenient));
  RENGA_RETURN_IF_ERROR(PromptList(request, parsed.prompts).Read(*prompt));
  return parsed;
}

StatusOr<TokenizeBody> ParseTokenizeRequest(std::string_view body, bool lenient) {
  RENGA_ASSIGN_OR_RETURN(const json::object object, ParseJson(body));
  TokenizeBody parsed;
  FieldReader fields(object);
  parsed.model = fields.String("model").value_or("");
  std::optional<std::string> prompt = fields.String("prompt");
  if (fields.Find("messages") != nullptr) {
    if (prompt) fields.Refuse("prompt", "must not stand beside \"messages\"");
    ReadChat(fields, lenient, *parsed.request.mutable_chat());
  } else if (prompt) {
    parsed.request.set_text(*std::move(prompt));
  } else {
    fields.Refuse("prompt", "is required, or \"messages\"");
  }
  RENGA_RETURN_IF_ERROR(fields.Finish(lenient));
  return parsed;
}

StatusOr<DetokenizeBody> ParseDetokenizeRequest(std::string_view body, bool lenient) {
  RENGA_ASSIGN_OR_RETURN(const json::object object, ParseJson(body));
  DetokenizeBody parsed;
  FieldReader fields(object);
  parsed.model = fields.String("model").value_or("");
  const json::value* tokens = fields.Find("tokens");
  if (tokens == nullptr) {
    fields.Refuse("tokens", "is required");
  } else if (!tokens->is_array()) {
    fields.Refuse("tokens", "must be a list of token ids");
  } else {
    fields.Keep(
        ReadTokenIds(tokens->get_array(), "tokens", *parsed.request.mutable_token_ids()));
  }
  RENGA_RETURN_IF_ERROR(fields.Finish(lenient));
  return parsed;
}

std::string OpenAiFieldName(std::string_view native) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOtherNames = {{
      {"ignore_end_token", "ignore_eos"},
      {"token_ids", "prompt"},
      {"text", "prompt"},
      {"chat", "messages"},
  }};
  const size_t end = std::min(native.find_first_of(".["), native.size());
  for (const auto& [from, to] : kOtherNames) {
    if (native.substr(0, end) == from) {
      return std::string(to) + std::string(native.substr(end));
    }
  }
  return std::string(native);
}

std::string ClientFieldName(std::string field, const AnswerShape& shape, size_t prompt,
                            size_t prompts) {
  if (field == "max_tokens" && shape.newer_limit) return "max_completion_tokens";
  if (field == "logprobs" && shape.chat) return "top_logprobs";
  if (field == "prompt_logprobs" && !shape.prompt_logprobs) return "logprobs";
  constexpr std::string_view kPrompt = "prompt";
  const size_t end = std::min(field.find('['), field.size());
  if (prompts == 1 || std::string_view(field).substr(0, end) != kPrompt) return field;
  return ElementName(kPrompt, prompt) + field.substr(end);
}

}  // namespace renga
