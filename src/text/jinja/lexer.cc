#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/status_macros.h"
#include "text/jinja/strings.h"
#include "text/utf8.h"

namespace renga::jinja {
namespace {

using Kind = Token::Kind;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool IsNameChar(char c) { return IsNameStart(c) || IsDigit(c); }

// Value of a hexadecimal digit, or -1.
int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<char> SimpleEscape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return std::nullopt;
  }
}

// Longest operators first.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) RENGA_RETURN_IF_ERROR(Step());
    Emit(Kind::kEnd, "", source_.size());
    return std::move(tokens_);
  }

 private:
  void Emit(Kind kind, std::string text, size_t offset) {
    tokens_.push_back({kind, std::move(text), offset});
  }
  Status Error(size_t offset, std::string_view message) const {
    return ErrorAt(source_, offset, message);
  }
  bool Follows(size_t at, std::string_view text) const {
    return source_.substr(std::min(at, source_.size()), text.size()) == text;
  }
  size_t SkipSpace(size_t at) const {
    return at + LeadingSpace(source_.substr(std::min(at, source_.size())));
  }

  Status Step();
  void EmitData(size_t begin, size_t tag, char sign, bool variable);
  Status SkipComment(size_t begin);
  std::optional<size_t> EndOfRawBegin(size_t begin) const;
  Status TakeRaw(size_t begin, size_t content);
  Status TakeTag(bool variable);
  std::optional<size_t> EndOfTag(bool variable) const;
  Status TakeToken(std::vector<char>& open);
  Status TakeString();
  Status TakeEscape(size_t& at, size_t end, std::string& text) const;
  void TakeNumber();
  Status TakeOperator(std::vector<char>& open);
  // Behind "%}" or "#}" at `at`: with '-' all white space goes, with none one newline.
  size_t BehindTag(size_t at, size_t tag_bytes, char sign, bool trim_newline) const;
  void Advance(size_t to) {
    at_ = to;
    line_starting_ = to > 0 && source_[to - 1] == '\n';
  }

  const std::string_view source_;
  size_t at_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

size_t NextTag(std::string_view source, size_t at) {
  for (; at + 1 < source.size(); ++at) {
    const char next = source[at + 1];
    if (source[at] == '{' && (next == '%' || next == '{' || next == '#')) return at;
  }
  return source.size();
}

Status Lexer::Step() {
  const size_t begin = at_;
  const size_t tag = NextTag(source_, begin);
  if (tag == source_.size()) {
    Emit(Kind::kData, std::string(source_.substr(begin)), begin);
    at_ = tag;
    return OkStatus();
  }
  const bool variable = source_[tag + 1] == '{';
  const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
  const bool has_sign = sign == '-' || sign == '+';
  EmitData(begin, tag, sign, variable);
  const size_t inside = tag + 2 + (has_sign ? 1 : 0);
  if (source_[tag + 1] == '#') {
    at_ = inside;
    return SkipComment(tag);
  }
  if (!variable) {
    if (const auto content = EndOfRawBegin(inside)) return TakeRaw(tag, *content);
  }
  Emit(variable ? Kind::kVariableBegin : Kind::kBlockBegin, "", tag);
  at_ = inside;
  return TakeTag(variable);
}

void Lexer::EmitData(size_t begin, size_t tag, char sign, bool variable) {
  std::string_view text = source_.substr(begin, tag - begin);
  if (sign == '-') {
    text.remove_suffix(TrailingSpace(text));
  } else if (sign != '+' && !variable) {
    const size_t newline = text.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if ((line > 0 || line_starting_) &&
        LeadingSpace(text.substr(line)) == text.size() - line) {
      text = text.substr(0, line);
    }
  }
  if (!text.empty()) Emit(Kind::kData, std::string(text), begin);
}

size_t Lexer::BehindTag(size_t at, size_t tag_bytes, char sign, bool trim_newline) const {
  const size_t behind = at + tag_bytes;
  if (sign == '-') return SkipSpace(behind);
  return sign != '+' && trim_newline && Follows(behind, "\n") ? behind + 1 : behind;
}

Status Lexer::SkipComment(size_t begin) {
  const size_t end = source_.find("#}", at_);
  if (end == std::string_view::npos) return Error(begin, "the comment has no end");
  const char sign = end > at_ ? source_[end - 1] : ' ';
  Advance(BehindTag(end, 2, sign, true));
  return OkStatus();
}

std::optional<size_t> Lexer::EndOfRawBegin(size_t begin) const {
  size_t at = SkipSpace(begin);
  if (!Follows(at, "raw")) return std::nullopt;
  at = SkipSpace(at + 3);
  if (Follows(at, "-%}")) return SkipSpace(at + 3);
  if (Follows(at, "%}")) return at + 2;
  return std::nullopt;
}

Status Lexer::TakeRaw(size_t begin, size_t content) {
  Advance(content);
  for (size_t tag = source_.find("{%", content); tag != std::string_view::npos;
       tag = source_.find("{%", tag + 2)) {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    size_t at = SkipSpace(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (!Follows(at, "endraw")) continue;
    at = SkipSpace(at + 6);
    const char end_sign = at < source_.size() ? source_[at] : ' ';
    if (end_sign == '-' || end_sign == '+') ++at;
    if (!Follows(at, "%}")) continue;
    EmitData(content, tag, sign, false);
    Advance(BehindTag(at, 2, end_sign, true));
    return OkStatus();
  }
  return Error(begin, "the raw block has no end");
}

std::optional<size_t> Lexer::EndOfTag(bool variable) const {
  const std::string_view end = variable ? "}}" : "%}";
  const char sign = source_[at_];
  const bool has_sign = sign == '-' || (sign == '+' && !variable);
  const size_t tag = at_ + (has_sign ? 1 : 0);
  if (!Follows(tag, end)) return std::nullopt;
  return BehindTag(tag, 2, has_sign ? sign : ' ', !variable);
}

Status Lexer::TakeTag(bool variable) {
  const size_t begin = at_;
  std::vector<char> open;  // Brackets not closed yet; inside them "}}" is two brackets.
  while (true) {
    at_ = SkipSpace(at_);
    if (at_ >= source_.size()) return Error(begin, "the tag has no end");
    if (open.empty()) {
      if (const auto end = EndOfTag(variable)) {
        Emit(variable ? Kind::kVariableEnd : Kind::kBlockEnd, "", at_);
        Advance(*end);
        return OkStatus();
      }
    }
    RENGA_RETURN_IF_ERROR(TakeToken(open));
  }
}

Status Lexer::TakeToken(std::vector<char>& open) {
  const char c = source_[at_];
  if (IsNameStart(c)) {
    size_t end = at_ + 1;
    while (end < source_.size() && IsNameChar(source_[end])) ++end;
    Emit(Kind::kName, std::string(source_.substr(at_, end - at_)), at_);
    at_ = end;
    return OkStatus();
  }
  if (IsDigit(c)) {
    TakeNumber();
    return OkStatus();
  }
  if (c == '\'' || c == '"') return TakeString();
  return TakeOperator(open);
}

Status Lexer::TakeOperator(std::vector<char>& open) {
  for (const std::string_view op : kOperators) {
    if (!Follows(at_, op)) continue;
    if (op == "(" || op == "[" || op == "{") {
      open.push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
    } else if (op == ")" || op == "]" || op == "}") {
      if (open.empty() || open.back() != op[0]) {
        return Error(at_, "unexpected '" + std::string(op) + "'");
      }
      open.pop_back();
    }
    Emit(Kind::kOperator, std::string(op), at_);
    at_ += op.size();
    return OkStatus();
  }
  const Utf8Char c = DecodeUtf8(source_.substr(at_));
  return Error(
      at_, "unexpected character '" + std::string(source_.substr(at_, c.length)) + "'");
}

void Lexer::TakeNumber() {
  const auto digits = [&](size_t at) {
    while (at < source_.size() &&
           (IsDigit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() &&
                                     IsDigit(source_[at + 1])))) {
      ++at;
    }
    return at;
  };
  size_t end = digits(at_);
  bool is_float = false;
  const bool behind_dot = at_ > 0 && source_[at_ - 1] == '.';  // x.0 is a subscript.
  if (!behind_dot && end + 1 < source_.size() && source_[end] == '.' &&
      IsDigit(source_[end + 1])) {
    is_float = true;
    end = digits(end + 1);
  }
  if (!behind_dot && end < source_.size() &&
      (source_[end] == 'e' || source_[end] == 'E')) {
    const bool sign = Follows(end + 1, "+") || Follows(end + 1, "-");
    const size_t exponent = end + 1 + (sign ? 1 : 0);
    if (exponent < source_.size() && IsDigit(source_[exponent])) {
      is_float = true;
      end = digits(exponent);
    }
  }
  std::string text(source_.substr(at_, end - at_));
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  Emit(is_float ? Kind::kFloat : Kind::kInteger, std::move(text), at_);
  at_ = end;
}

Status Lexer::TakeString() {
  const size_t begin = at_;
  const char quote = source_[at_];
  size_t end = at_ + 1;
  while (end < source_.size() && source_[end] != quote) {
    end += source_[end] == '\\' ? 2 : 1;
  }
  if (end >= source_.size()) return Error(begin, "the string has no end");
  std::string text;
  for (size_t at = begin + 1; at < end;) {
    if (source_[at] != '\\') {
      text.push_back(source_[at++]);
    } else {
      RENGA_RETURN_IF_ERROR(TakeEscape(at, end, text));
    }
  }
  Emit(Kind::kString, std::move(text), begin);
  at_ = end + 1;
  return OkStatus();
}

// At a backslash; `end` is the closing quote.
Status Lexer::TakeEscape(size_t& at, size_t end, std::string& text) const {
  const size_t begin = at;
  const char c = source_[at + 1];
  at += 2;
  if (const auto simple = SimpleEscape(c)) {
    text.push_back(*simple);
    return OkStatus();
  }
  if (c == '\n') return OkStatus();  // The line goes on.
  int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  char32_t code = 0;
  if (digits > 0) {
    for (; digits > 0; --digits, ++at) {
      const int digit = at < end ? HexDigit(source_[at]) : -1;
      if (digit < 0) return Error(begin, "the escape is cut short");
      code = code * 16 + static_cast<char32_t>(digit);
    }
  } else if (c >= '0' && c <= '7') {
    --at;
    for (; digits < 3 && at < end && source_[at] >= '0' && source_[at] <= '7';
         ++at, ++digits) {
      code = code * 8 + static_cast<char32_t>(source_[at] - '0');
    }
  } else {
    text.push_back('\\');
    --at;
    return OkStatus();
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return Error(begin, "the escape is not a character");
  }
  AppendUtf8(code, text);
  return OkStatus();
}

}  // namespace

std::string NormalizeSource(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\r') {
      text.push_back(source[at]);
      continue;
    }
    text.push_back('\n');
    if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

StatusOr<std::vector<Token>> Lex(std::string_view source) { return Lexer(source).Run(); }

Status ErrorAt(std::string_view source, size_t offset, std::string_view message) {
  const std::string_view before = source.substr(0, std::min(offset, source.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const std::string_view in_line =
      newline == std::string_view::npos ? before : before.substr(newline + 1);
  return Status(StatusCode::kInvalidArgument,
                "line " + std::to_string(line) + ", column " +
                    std::to_string(CountCharacters(in_line) + 1) + ": " +
                    std::string(message));
}

}  // namespace renga::jinja
