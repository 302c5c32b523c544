#include "text/chat_template.h"

#include <utility>

#include "base/status_macros.h"
#include "text/jinja/marked.h"
#include "text/jinja/template.h"
#include "text/utf8.h"

namespace renga {
namespace {

using jinja::PlainText;
using jinja::TrustedText;
using jinja::Value;

StatusOr<Value> MessageValue(const ChatMessage& message) {
  std::vector<std::pair<Value, Value>> entries;
  entries.emplace_back(Value::String(TrustedText("role")),
                       Value::String(PlainText(message.role)));
  entries.emplace_back(Value::String(TrustedText("content")),
                       Value::String(PlainText(message.content)));
  return Value::MakeDict(std::move(entries));
}

StatusOr<Value> MessagesValue(const std::vector<ChatMessage>& messages) {
  std::vector<Value> items;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string field = "messages[" + std::to_string(i) + "].";
    if (const auto bad = FindInvalidUtf8(messages[i].role)) {
      return InvalidArgument(field + "role",
                             "is not UTF-8 at byte " + std::to_string(*bad));
    }
    if (const auto bad = FindInvalidUtf8(messages[i].content)) {
      return InvalidArgument(field + "content",
                             "is not UTF-8 at byte " + std::to_string(*bad));
    }
    RENGA_ASSIGN_OR_RETURN(Value message, MessageValue(messages[i]));
    items.push_back(std::move(message));
  }
  return Value::MakeList(std::move(items));
}

Status RenderError(const Status& status) {
  switch (status.code()) {
    case StatusCode::kFailedPrecondition:  // raise_exception: the template's own words.
      return InvalidArgument("messages", status.message());
    case StatusCode::kResourceExhausted:
      return InvalidArgument(
          "messages",
          "rendering the chat template exceeds its limits (" + status.message() + ")");
    default:
      return InvalidArgument(
          "messages",
          "the chat template cannot render these messages (" + status.message() + ")");
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<jinja::Template> parsed,
                           ChatTemplateTokens tokens)
    : template_(std::move(parsed)), tokens_(std::move(tokens)) {}

ChatTemplate::~ChatTemplate() = default;

StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(
    std::string_view source, const ChatTemplateTokens& tokens) {
  StatusOr<std::unique_ptr<jinja::Template>> parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) {
    return InvalidArgument("chat_template",
                           "the template does not parse: " + parsed.status().message());
  }
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(*parsed), tokens));
}

StatusOr<MarkedText> ChatTemplate::Render(const ChatInput& input) const {
  RENGA_ASSIGN_OR_RETURN(Value messages, MessagesValue(input.messages));
  jinja::Variables context;
  context.emplace_back("messages", std::move(messages));
  context.emplace_back("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  // As the reference passes them when a request has none.
  context.emplace_back("tools", Value::None());
  context.emplace_back("documents", Value::None());
  if (!tokens_.bos.empty()) {
    context.emplace_back("bos_token", Value::String(TrustedText(tokens_.bos)));
  }
  if (!tokens_.eos.empty()) {
    context.emplace_back("eos_token", Value::String(TrustedText(tokens_.eos)));
  }
  StatusOr<MarkedText> rendered = template_->Render(context);
  if (!rendered.ok()) return RenderError(rendered.status());
  return rendered;
}

}  // namespace renga
