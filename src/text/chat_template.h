// ChatTemplate: the model's own template, from messages to a marked prompt.
//
// The prompt keeps for every byte whether the template wrote it or a client did: only
// what the template wrote may hold control tokens (MarkedText). Rendering is bounded in
// work, output and depth, whatever the template and the messages are.
//
// Thread safety: immutable after Parse; Render may run on many threads.

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "renga/request.h"
#include "renga/status.h"
#include "renga/tokenizer.h"

namespace renga {

namespace jinja {
class Template;
}

// What a template may write as `bos_token` and `eos_token`; empty: the model has none.
struct ChatTemplateTokens {
  std::string bos;
  std::string eos;
};

class ChatTemplate {
 public:
  // The error of a template that does not parse names line and column.
  static StatusOr<std::unique_ptr<ChatTemplate>> Parse(
      std::string_view source, const ChatTemplateTokens& tokens = {});
  ~ChatTemplate();

  // What the template refuses (raise_exception) is an InvalidArgument for the field
  // "messages" with the template's own words.
  StatusOr<MarkedText> Render(const ChatInput& input) const;

 private:
  ChatTemplate(std::unique_ptr<jinja::Template> parsed, ChatTemplateTokens tokens);

  const std::unique_ptr<jinja::Template> template_;
  const ChatTemplateTokens tokens_;
};

}  // namespace renga
