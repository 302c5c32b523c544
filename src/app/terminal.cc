#include "app/terminal.h"

#include <unistd.h>

#include <cstdlib>

#include "text/utf8.h"

namespace renga {
namespace {

bool IsSet(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): none sets.
  return value != nullptr && *value != '\0';
}

// C0 and C1 controls (an escape sequence begins with one of them), and what turns the
// direction of the text behind it.
bool IsHarmful(char32_t code) {
  if (code == '\n' || code == '\t') return false;
  return code < 0x20 || (code >= 0x7f && code < 0xa0) ||
         (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

bool IsTerminal(int descriptor) {
  if (isatty(descriptor) != 1) return false;
  const char* kind = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): none sets.
  return kind == nullptr || std::string_view(kind) != "dumb";
}

bool WantsColour() { return !IsSet("NO_COLOR"); }

std::string SafeForTerminal(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    const std::string_view bytes = text.substr(0, c.length);
    text.remove_prefix(c.length);
    if (bytes == "\r" && text.starts_with('\n')) continue;
    const bool good = c.verdict == Utf8Char::Verdict::kValid && !IsHarmful(c.code);
    out += good ? bytes : kReplacementCharacter;
  }
  return out;
}

}  // namespace renga
