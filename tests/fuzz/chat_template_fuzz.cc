// Fuzzes the template engine: the input is a template and, behind a byte 0xFF, the text
// of a message. Whatever it is, nothing crashes, the budgets hold, and a client's text
// never becomes trusted.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/chat_template.h"
#include "text/jinja/marked.h"
#include "text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using renga::jinja::PlainText;
  using renga::jinja::Value;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = std::min(input.find('\xFF'), input.size());
  const auto parsed = renga::jinja::Template::Parse(input.substr(0, border));
  if (!parsed.ok()) return 0;
  const std::string_view content = input.substr(std::min(border + 1, input.size()));
  auto message = Value::MakeDict(
      {{Value::String(PlainText("role")), Value::String(PlainText("user"))},
       {Value::String(PlainText("content")),
        Value::String(PlainText(std::string(content)))}});
  auto messages = Value::MakeList({*message, *message});
  const renga::jinja::Variables context = {{"messages", *messages},
                                           {"add_generation_prompt", Value::Bool(true)}};
  const renga::jinja::RenderLimits limits{
      .max_steps = 20'000, .max_bytes = 1 << 18, .max_rounds = 5'000};
  const auto rendered = (*parsed)->Render(context, limits);
  if (!rendered.ok()) return 0;
  if (rendered->text.size() > size_t{1} << 18) std::abort();
  size_t end = 0;
  for (const renga::ByteRange& range : rendered->trusted) {
    if (range.begin < end || range.end <= range.begin) std::abort();
    end = range.end;
  }
  if (end > rendered->text.size()) std::abort();
  return 0;
}
