#include "text/stream_decoder.h"

#include "text/utf8.h"

namespace renga {

void StreamDecoder::AppendBytes(std::string_view bytes, std::string& out) {
  if (bytes.empty()) return;
  held_.append(bytes);
  const std::string_view all = held_;
  size_t at = 0;
  while (at < all.size()) {
    const Utf8Char c = DecodeUtf8(all.substr(at));
    if (c.verdict == Utf8Char::Verdict::kCut) break;
    const bool valid = c.verdict == Utf8Char::Verdict::kValid;
    out.append(valid ? all.substr(at, c.length) : kReplacementCharacter);
    at += c.length;
  }
  held_.erase(0, at);
}

void StreamDecoder::Flush(std::string& out) {
  if (held_.empty()) return;
  out.append(kReplacementCharacter);
  held_.clear();
}

std::string DecodeAll(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const TokenId id : ids) decoder.Append(id, text);
  decoder.Flush(text);
  return text;
}

}  // namespace renga
