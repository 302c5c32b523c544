#include "text/added_tokens.h"

#include "text/utf8.h"

namespace renga {
namespace {

// Start of the character that ends at `end`. REQUIRES: end > 0, valid UTF-8.
size_t PreviousCharacter(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    const size_t before = PreviousCharacter(text, begin);
    if (IsWordCharacter(DecodeUtf8(text.substr(before)).code)) return true;
  }
  return end < text.size() && IsWordCharacter(DecodeUtf8(text.substr(end)).code);
}

size_t SkipBlanksBack(std::string_view text, size_t at, size_t not_before) {
  while (at > not_before) {
    const size_t previous = PreviousCharacter(text, at);
    if (!IsWhiteSpace(DecodeUtf8(text.substr(previous)).code)) break;
    at = previous;
  }
  return at;
}

size_t SkipBlanks(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    if (!IsWhiteSpace(c.code)) break;
    at += c.length;
  }
  return at;
}

// Walks along `text` and says how far the trusted range around a position reaches.
class TrustCursor {
 public:
  explicit TrustCursor(std::span<const ByteRange> ranges) : ranges_(ranges) {}

  // End of the trusted text around `at`, or 0. REQUIRES: `at` never falls.
  size_t EndAt(size_t at) {
    while (next_ < ranges_.size() && ranges_[next_].end <= at) ++next_;
    if (next_ == ranges_.size() || ranges_[next_].begin > at) return 0;
    if (joined_end_ <= at) {  // Ranges that touch are one.
      size_t last = next_;
      while (last + 1 < ranges_.size() && ranges_[last + 1].begin <= ranges_[last].end) {
        ++last;
      }
      joined_end_ = ranges_[last].end;
    }
    return joined_end_;
  }

 private:
  std::span<const ByteRange> ranges_;
  size_t next_ = 0;
  size_t joined_end_ = 0;
};

}  // namespace

void AddedTokens::Add(const AddedToken& token) {
  int32_t node = 0;
  for (const char byte : token.content) {
    int32_t child = Child(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_[static_cast<size_t>(node)].children.emplace_back(byte, child);
      if (node == 0) first_[static_cast<uint8_t>(byte)] = child;
      nodes_.emplace_back();
    }
    node = child;
  }
  nodes_[static_cast<size_t>(node)].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

int32_t AddedTokens::Child(int32_t node, char byte) const {
  if (node == 0) return first_[static_cast<uint8_t>(byte)];
  for (const auto& [key, child] : nodes_[static_cast<size_t>(node)].children) {
    if (key == byte) return child;
  }
  return -1;
}

int32_t AddedTokens::Longest(std::string_view text, size_t at, size_t trusted_end) const {
  int32_t best = -1;
  int32_t node = 0;
  for (size_t end = at; end < text.size();) {
    node = Child(node, text[end]);
    if (node < 0) break;
    ++end;
    const int32_t token = nodes_[static_cast<size_t>(node)].token;
    if (token < 0) continue;
    if (!tokens_[static_cast<size_t>(token)].control || end <= trusted_end) best = token;
  }
  return best;
}

std::vector<AddedTokens::Match> AddedTokens::Find(
    std::string_view text, std::span<const ByteRange> trusted) const {
  std::vector<Match> matches;
  if (empty()) return matches;
  TrustCursor trust(trusted);
  size_t taken = 0;  // Everything before belongs to a match or was passed over for one.
  for (size_t at = 0; at < text.size();) {
    const int32_t found = Longest(text, at, trust.EndAt(at));
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    const size_t end = at + token.content.size();
    if (token.single_word && TouchesWord(text, at, end)) {
      at = end;  // As the reference: no second try inside.
      continue;
    }
    const size_t begin = token.lstrip ? SkipBlanksBack(text, at, taken) : at;
    taken = token.rstrip ? SkipBlanks(text, end) : end;
    matches.push_back({begin, taken, token.id});
    at = taken;
  }
  return matches;
}

}  // namespace renga
