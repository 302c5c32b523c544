#include "text/pre_tokenizer.h"

#include "text/utf8.h"

namespace renga {
namespace {

struct Char {
  char32_t code = 0;
  size_t end = 0;  // Offset behind it.
  CharClass cls = CharClass::kOther;
};

bool IsNewline(char32_t code) { return code == '\r' || code == '\n'; }

// One text; every function takes the offset of a character and looks ahead from there.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  size_t size() const { return text_.size(); }
  bool AtEnd(size_t at) const { return at >= text_.size(); }
  // REQUIRES: !AtEnd(at).
  Char At(size_t at) const {
    const auto byte = static_cast<uint8_t>(text_[at]);
    if (byte < 0x80) return {byte, at + 1, ClassOf(byte)};
    const Utf8Char c = DecodeUtf8(text_.substr(at));
    return {c.code, at + c.length, ClassOf(c.code)};
  }
  bool Is(size_t at, CharClass cls) const { return !AtEnd(at) && At(at).cls == cls; }
  size_t EndOfRun(size_t at, CharClass cls) const {
    while (!AtEnd(at)) {
      const Char c = At(at);
      if (c.cls != cls) break;
      at = c.end;
    }
    return at;
  }

  // End of 's 't 're 've 'm 'll 'd at `at`, or `at` itself.
  size_t EndOfContraction(size_t at, bool any_case) const;
  // A run of white space: \s+(?!\S), else \s+. REQUIRES: At(at) is white space.
  size_t EndOfBlank(size_t at) const;
  size_t EndOfGpt2Piece(size_t at) const;
  size_t EndOfLlama3Piece(size_t at, int max_digits) const;

 private:
  // Case-folded character; U+017F is a folded 's', as the expression engines have it.
  char32_t Folded(size_t at, bool any_case) const {
    if (AtEnd(at)) return 0;
    const char32_t code = At(at).code;
    if (!any_case) return code;
    if (code >= 'A' && code <= 'Z') return code + ('a' - 'A');
    return code == 0x17F ? U's' : code;
  }

  std::string_view text_;
};

size_t Scanner::EndOfContraction(size_t at, bool any_case) const {
  if (text_[at] != '\'' || AtEnd(at + 1)) return at;
  const char32_t first = Folded(at + 1, any_case);
  const size_t second_at = At(at + 1).end;
  switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return second_at;
    case 'r':
    case 'v':
      return Folded(second_at, any_case) == 'e' ? second_at + 1 : at;
    case 'l':
      return Folded(second_at, any_case) == 'l' ? second_at + 1 : at;
    default:
      return at;
  }
}

size_t Scanner::EndOfBlank(size_t at) const {
  size_t last = at;  // Start of the run's last character.
  size_t end = at;
  while (!AtEnd(end)) {
    const Char c = At(end);
    if (c.cls != CharClass::kSpace) break;
    last = end;
    end = c.end;
  }
  return AtEnd(end) || last == at ? end : last;
}

size_t Scanner::EndOfGpt2Piece(size_t at) const {
  if (const size_t end = EndOfContraction(at, false); end != at) return end;
  const size_t body = text_[at] == ' ' && !AtEnd(at + 1) ? at + 1 : at;
  const CharClass cls = At(body).cls;
  if (cls != CharClass::kSpace) return EndOfRun(body, cls);
  return EndOfBlank(at);
}

size_t Scanner::EndOfLlama3Piece(size_t at, int max_digits) const {
  if (const size_t end = EndOfContraction(at, true); end != at) return end;
  const Char first = At(at);
  if (first.cls == CharClass::kLetter) return EndOfRun(at, CharClass::kLetter);
  if (first.cls == CharClass::kNumber) {
    size_t end = first.end;
    for (int n = 1; n < max_digits && Is(end, CharClass::kNumber); ++n) end = At(end).end;
    return end;
  }
  if (!IsNewline(first.code) && Is(first.end, CharClass::kLetter)) {
    return EndOfRun(first.end, CharClass::kLetter);
  }
  const size_t body = first.code == ' ' ? first.end : at;
  if (Is(body, CharClass::kOther)) {
    size_t end = EndOfRun(body, CharClass::kOther);
    while (!AtEnd(end) && IsNewline(At(end).code)) ++end;
    return end;
  }
  size_t behind_newline = at;
  for (size_t end = at; Is(end, CharClass::kSpace);) {
    const Char c = At(end);
    end = c.end;
    if (IsNewline(c.code)) behind_newline = end;
  }
  return behind_newline != at ? behind_newline : EndOfBlank(at);
}

size_t EndOfPiece(SplitKind kind, const Scanner& scan, size_t at) {
  switch (kind) {
    case SplitKind::kLlama3:
      return scan.EndOfLlama3Piece(at, 3);
    case SplitKind::kQwen2:
      return scan.EndOfLlama3Piece(at, 1);
    default:
      return scan.EndOfGpt2Piece(at);
  }
}

void SplitRange(SplitKind kind, std::string_view text,
                std::vector<std::string_view>& pieces) {
  const Scanner scan(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = EndOfPiece(kind, scan, at);
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
}

void SplitSmolLm(std::string_view text, std::vector<std::string_view>& pieces) {
  const Scanner scan(text);
  size_t begin = 0;  // Of the text since the last number.
  for (size_t at = 0; at < text.size();) {
    const Char c = scan.At(at);
    if (c.cls == CharClass::kNumber) {
      SplitRange(SplitKind::kGpt2, text.substr(begin, at - begin), pieces);
      pieces.push_back(text.substr(at, c.end - at));
      begin = c.end;
    }
    at = c.end;
  }
  SplitRange(SplitKind::kGpt2, text.substr(begin), pieces);
}

}  // namespace

void SplitText(SplitKind kind, std::string_view text,
               std::vector<std::string_view>& pieces) {
  if (kind == SplitKind::kSmolLm) {
    SplitSmolLm(text, pieces);
  } else {
    SplitRange(kind, text, pieces);
  }
}

std::optional<SplitKind> SplitKindFromGgufName(std::string_view name) {
  if (name == "gpt-2" || name == "gpt2") return SplitKind::kGpt2;
  if (name == "smollm") return SplitKind::kSmolLm;
  if (name == "llama-bpe" || name == "llama3" || name == "llama-v3") {
    return SplitKind::kLlama3;
  }
  if (name == "qwen2") return SplitKind::kQwen2;
  return std::nullopt;
}

}  // namespace renga
