#include "app/chat_session.h"

#include <algorithm>
#include <charconv>

#include "base/status_macros.h"
#include "gateway/json_reader.h"
#include "gateway/json_writer.h"

namespace renga {
namespace {

using Kind = ChatSession::Action::Kind;

constexpr char kHelp[] =
    "A line is a message; one that ends with \\ goes on in the next. Commands:\n"
    "  /system TEXT     the system prompt from now on; without TEXT none\n"
    "  /set KEY VALUE   temperature, top_p, top_k, min_p, typical_p, seed,\n"
    "                   repetition_penalty, presence_penalty, frequency_penalty,\n"
    "                   max_tokens, min_tokens or stop; without VALUE the default\n"
    "                   again; without KEY shows what is set\n"
    "  /retry           answer the last message once more\n"
    "  /reset           forget the conversation (the system prompt stays)\n"
    "  /show            print the conversation\n"
    "  /save FILE       write it as JSON; /load FILE reads it again\n"
    "  /quit            as Ctrl-D. Ctrl-C stops an answer\n"
    "A message that begins with / is typed with //.\n";

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

template <class Number>
std::optional<Number> Parse(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Whether the number is in range is the server's to say.
template <auto kSetter, class Number, class Message>
bool SetNumber(std::string_view text, Message& message) {
  const std::optional<Number> value = Parse<Number>(text);
  if (value) (message.*kSetter)(*value);
  return value.has_value();
}

struct Setting {
  std::string_view name;
  bool (*set)(std::string_view text, v1::GenerateRequest& request);
};

using Sampling = v1::SamplingParams;

template <auto kSetter, class Number>
bool SetSampling(std::string_view text, v1::GenerateRequest& request) {
  return SetNumber<kSetter, Number>(text, *request.mutable_sampling());
}

constexpr Setting kSettings[] = {
    {"temperature", SetSampling<&Sampling::set_temperature, float>},
    {"top_p", SetSampling<&Sampling::set_top_p, float>},
    {"top_k", SetSampling<&Sampling::set_top_k, int32_t>},
    {"min_p", SetSampling<&Sampling::set_min_p, float>},
    {"typical_p", SetSampling<&Sampling::set_typical_p, float>},
    {"repetition_penalty", SetSampling<&Sampling::set_repetition_penalty, float>},
    {"presence_penalty", SetSampling<&Sampling::set_presence_penalty, float>},
    {"frequency_penalty", SetSampling<&Sampling::set_frequency_penalty, float>},
    {"seed", SetSampling<&Sampling::set_seed, uint64_t>},
    {"max_tokens",
     [](std::string_view text, v1::GenerateRequest& request) {
       return SetNumber<&v1::GenerateRequest::set_max_tokens, int64_t>(text, request);
     }},
    {"min_tokens",
     [](std::string_view text, v1::GenerateRequest& request) {
       return SetNumber<&v1::GenerateRequest::set_min_tokens, int64_t>(text, request);
     }},
    {"stop",
     [](std::string_view text, v1::GenerateRequest& request) {
       request.add_stop(std::string(text));
       return true;
     }},
};

const Setting* FindSetting(std::string_view name) {
  const auto found = std::find_if(std::begin(kSettings), std::end(kSettings),
                                  [&](const Setting& s) { return s.name == name; });
  return found == std::end(kSettings) ? nullptr : found;
}

ChatSession::Action Fail(std::string text) {
  return {.kind = Kind::kFail, .text = std::move(text)};
}

ChatSession::Action Say(std::string text) {
  return {.kind = Kind::kSay, .text = std::move(text)};
}

// One of the messages in a file.
Status ReadMessage(const boost::json::value& value, const std::string& field,
                   ChatSession::Message& message) {
  if (!value.is_object()) return InvalidArgument(field, "must be an object");
  FieldReader reader(value.get_object(), field + ".");
  const auto role = reader.String("role");
  const auto content = reader.String("content");
  RENGA_RETURN_IF_ERROR(reader.Finish(false));
  if (!role || (*role != "system" && *role != "user" && *role != "assistant")) {
    return InvalidArgument(field + ".role", "must be system, user or assistant");
  }
  if (!content) return InvalidArgument(field + ".content", "is required");
  message = {.role = *role, .text = *content};
  return OkStatus();
}

}  // namespace

ChatSession::Action ChatSession::Enter(std::string_view line) {
  if (Trimmed(line).empty()) return {};
  if (!line.starts_with('/')) return Ask(std::string(line));
  if (line.starts_with("//")) return Ask(std::string(line.substr(1)));
  const size_t space = std::min(line.find_first_of(" \t\r"), line.size());
  return Command(line.substr(1, space - 1), Trimmed(line.substr(space)));
}

ChatSession::Action ChatSession::Command(std::string_view name, std::string_view rest) {
  if (name == "help") return Say(kHelp);
  if (name == "quit" || name == "exit") return {.kind = Kind::kQuit};
  if (name == "set") return Set(rest);
  if (name == "show") return Say(Show());
  if (name == "retry") return Retry();
  if (name == "system") {
    system_ = rest;
    return Say(system_.empty() ? "There is no system prompt now.\n"
                               : "The system prompt is set.\n");
  }
  if (name == "reset") {
    history_.clear();
    last_.clear();
    last_answered_ = false;
    return Say("The conversation is forgotten.\n");
  }
  if (name == "save" || name == "load") {
    if (rest.empty()) return Fail('/' + std::string(name) + ": which file?");
    return {.kind = name == "save" ? Kind::kSave : Kind::kLoad,
            .text = std::string(rest)};
  }
  return Fail('/' + std::string(name) + ": there is no such command; /help lists them");
}

ChatSession::Action ChatSession::Ask(std::string text) {
  last_ = text;
  last_answered_ = false;
  asked_ = std::move(text);
  return {.kind = Kind::kAsk};
}

ChatSession::Action ChatSession::Retry() {
  if (last_.empty()) return Fail("/retry: nothing was asked yet");
  // The answer goes, and its question with it: it is asked once more.
  if (last_answered_) history_.resize(history_.size() - 2);
  return Ask(last_);
}

ChatSession::Action ChatSession::Set(std::string_view rest) {
  if (rest.empty()) return Say(ShowSettings());
  const size_t space = std::min(rest.find_first_of(" \t"), rest.size());
  const std::string name(rest.substr(0, space));
  const std::string_view value = Trimmed(rest.substr(space));
  if (FindSetting(name) == nullptr) {
    return Fail("/set " + name + ": there is no such setting; /help lists them");
  }
  Settings settings = settings_;
  std::erase_if(settings, [&](const auto& set) { return set.first == name; });
  if (!value.empty()) settings.emplace_back(name, value);
  v1::GenerateRequest request;
  for (const auto& [key, text] : settings) {
    if (!FindSetting(key)->set(text, request)) {
      return Fail(std::string("/set ").append(key).append(": '").append(text).append(
          "' is not such a number"));
    }
  }
  settings_ = std::move(settings);
  template_ = std::move(request);
  return Say(ShowSettings());
}

std::string ChatSession::ShowSettings() const {
  if (settings_.empty()) return "Everything has its default.\n";
  std::string out;
  for (const auto& [name, value] : settings_) {
    out.append(name).append(" = ").append(value).append("\n");
  }
  return out;
}

std::string ChatSession::Show() const {
  std::string out;
  if (!system_.empty()) out += "[system]\n" + system_ + '\n';
  for (const Message& message : history_) {
    out += '[' + message.role + "]\n" + message.text + '\n';
  }
  return out.empty() ? "Nothing was said yet.\n" : out;
}

v1::GenerateRequest ChatSession::Request() const {
  v1::GenerateRequest request = template_;
  const auto add = [&request](std::string_view role, const std::string& text) {
    v1::ChatMessage& message = *request.mutable_chat()->add_messages();
    message.set_role(std::string(role));
    message.set_content(text);
  };
  if (!system_.empty()) add("system", system_);
  for (const Message& message : history_) add(message.role, message.text);
  if (asked_) add("user", *asked_);
  return request;
}

void ChatSession::Answered(std::string answer) {
  history_.push_back({.role = "user", .text = *std::exchange(asked_, std::nullopt)});
  history_.push_back({.role = "assistant", .text = std::move(answer)});
  last_answered_ = true;
}

void ChatSession::NotAnswered() { asked_.reset(); }

std::string ChatSession::ToJson() const {
  JsonWriter json;
  json.BeginObject().Key("messages").BeginArray();
  const auto add = [&json](std::string_view role, const std::string& text) {
    json.BeginObject().Field("role", role).Field("content", text).EndObject();
  };
  if (!system_.empty()) add("system", system_);
  for (const Message& message : history_) add(message.role, message.text);
  json.EndArray().EndObject();
  return std::move(json).Take() + '\n';
}

Status ChatSession::FromJson(std::string_view json) {
  RENGA_ASSIGN_OR_RETURN(const boost::json::object object, ParseJson(json));
  FieldReader reader(object);
  const boost::json::value* messages = reader.Find("messages");
  RENGA_RETURN_IF_ERROR(reader.Finish(false));
  if (messages == nullptr || !messages->is_array()) {
    return InvalidArgument("messages", "must be a list");
  }
  std::string system;
  std::vector<Message> history;
  for (size_t i = 0; i < messages->get_array().size(); ++i) {
    Message message;
    const std::string field = ElementName("messages", i);
    RENGA_RETURN_IF_ERROR(ReadMessage(messages->get_array()[i], field, message));
    if (message.role == "system") {
      if (i != 0) return InvalidArgument(field + ".role", "system must come first");
      system = std::move(message.text);
    } else {
      history.push_back(std::move(message));
    }
  }
  system_ = std::move(system);
  history_ = std::move(history);
  // A question without an answer can be asked again, but is not part of the history.
  last_answered_ = false;
  last_.clear();
  const size_t size = history_.size();
  if (size > 0 && history_.back().role == "user") {
    last_ = history_.back().text;
    history_.pop_back();
  } else if (size > 1 && history_[size - 2].role == "user") {
    last_ = history_[size - 2].text;
    last_answered_ = true;
  }
  return OkStatus();
}

}  // namespace renga
