#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/status_macros.h"
#include "text/byte_alphabet.h"
#include "text/nfc.h"
#include "text/utf8.h"

namespace renga {
namespace {

// Offsets inside a piece are 32 bits.
constexpr size_t kMaxTextBytes = size_t{1} << 30;
constexpr size_t kMaxVocabulary = size_t{1} << 24;

std::string Indexed(std::string_view field, size_t index) {
  return std::string(field) + "[" + std::to_string(index) + "]";
}

bool InRange(TokenId id, size_t vocab_size) {
  return id >= 0 && static_cast<size_t>(id) < vocab_size;
}

Status CheckTrusted(const MarkedText& text) {
  size_t before = 0;
  for (const ByteRange& range : text.trusted) {
    if (range.begin < before || range.end < range.begin || range.end > text.text.size()) {
      return Internal("trusted ranges are not sorted parts of the text");
    }
    before = range.end;
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<BpeTokenizer>> BpeTokenizer::Make(
    const BpeVocabulary& vocabulary) {
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer());
  tokenizer->split_ = vocabulary.split;
  tokenizer->nfc_ = vocabulary.nfc;
  TokenIds ids;
  RENGA_RETURN_IF_ERROR(tokenizer->TakeTokens(vocabulary, ids));
  RENGA_RETURN_IF_ERROR(tokenizer->TakeAdded(vocabulary));
  tokenizer->TakeByteTokens(vocabulary, ids);
  RENGA_RETURN_IF_ERROR(tokenizer->TakeMerges(vocabulary, ids));
  RENGA_RETURN_IF_ERROR(tokenizer->TakeSpecialIds(vocabulary));
  return tokenizer;
}

Status BpeTokenizer::TakeTokens(const BpeVocabulary& vocabulary, TokenIds& ids) {
  const size_t size = vocabulary.tokens.size();
  if (size == 0 || size > kMaxVocabulary) {
    return InvalidArgument(
        "tokens", "a vocabulary of " + std::to_string(size) + " tokens is not supported");
  }
  bytes_.resize(size);
  control_.resize(size, false);
  ids.reserve(size);
  for (size_t i = 0; i < size; ++i) {
    const std::string& token = vocabulary.tokens[i];
    if (token.empty()) return InvalidArgument(Indexed("tokens", i), "is empty");
    if (!ids.emplace(token, static_cast<TokenId>(i)).second) {
      return InvalidArgument(Indexed("tokens", i), "is the same as an earlier token");
    }
    // A token that the alphabet cannot spell stands for its own text, as in the
    // reference.
    bytes_[i] = AlphabetToBytes(token).value_or(token);
  }
  return OkStatus();
}

void BpeTokenizer::TakeByteTokens(const BpeVocabulary& vocabulary, const TokenIds& ids) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    AppendUtf8(ByteToAlphabet(static_cast<uint8_t>(byte)), spelled);
    const auto found = ids.find(spelled);
    if (found == ids.end() || IsControl(found->second)) continue;
    merger_.SetByte(static_cast<uint8_t>(byte), found->second);
  }
  if (!vocabulary.ignore_merges) return;
  std::vector<bool> added(bytes_.size(), false);
  for (const AddedToken& token : vocabulary.added)
    added[static_cast<size_t>(token.id)] = true;
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if (!added[i]) whole_pieces_.emplace(bytes_[i], static_cast<TokenId>(i));
  }
}

Status BpeTokenizer::TakeMerges(const BpeVocabulary& vocabulary, const TokenIds& ids) {
  if (vocabulary.merges.size() > kMaxVocabulary) {
    return InvalidArgument("merges", "there are too many");
  }
  std::string joined;
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string_view merge = vocabulary.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return InvalidArgument(Indexed("merges", i),
                             "is not two tokens with a space between");
    }
    joined.assign(merge.substr(0, space)).append(merge.substr(space + 1));
    const auto left = ids.find(merge.substr(0, space));
    const auto right = ids.find(merge.substr(space + 1));
    const auto merged = ids.find(joined);
    if (left == ids.end() || right == ids.end() || merged == ids.end()) {
      return InvalidArgument(Indexed("merges", i), "names a token that does not exist");
    }
    if (IsControl(merged->second)) {
      // It would let plain text become a control token.
      return InvalidArgument(Indexed("merges", i), "makes a control token");
    }
    // A pair that comes twice keeps its first rank.
    merger_.AddMerge(left->second, right->second,
                     {.rank = static_cast<int32_t>(i), .merged = merged->second});
  }
  return OkStatus();
}

Status BpeTokenizer::TakeAdded(const BpeVocabulary& vocabulary) {
  for (size_t i = 0; i < vocabulary.added.size(); ++i) {
    const AddedToken& token = vocabulary.added[i];
    if (!InRange(token.id, bytes_.size())) {
      return InvalidArgument(Indexed("added", i), "the id is outside the vocabulary");
    }
    const std::string field = Indexed("tokens", static_cast<size_t>(token.id));
    if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) {
      return InvalidArgument(field, "an added token has 1 to " +
                                        std::to_string(kMaxAddedTokenBytes) + " bytes");
    }
    if (FindInvalidUtf8(token.content)) return InvalidArgument(field, "is not UTF-8");
    const auto id = static_cast<size_t>(token.id);
    control_[id] = token.control;
    bytes_[id] = token.control ? std::string() : token.content;
    // A control token is looked for in the text as it came: after normalisation its
    // origin would no longer be known byte by byte.
    const bool after_normalising = nfc_ && token.normalized && !token.control;
    (after_normalising ? normalized_added_ : added_).Add(token);
  }
  return OkStatus();
}

Status BpeTokenizer::TakeSpecialIds(const BpeVocabulary& vocabulary) {
  bos_ = vocabulary.bos;
  add_bos_ = vocabulary.add_bos;
  end_tokens_ = vocabulary.end_tokens;
  if (bos_ != -1 && !InRange(bos_, bytes_.size())) {
    return InvalidArgument("bos_token_id", "is outside the vocabulary");
  }
  if (add_bos_ && bos_ == -1) {
    return InvalidArgument("bos_token_id", "is missing, though add_bos_token is set");
  }
  for (const TokenId id : end_tokens_) {
    if (!InRange(id, bytes_.size())) {
      return InvalidArgument("eos_token_id", "is outside the vocabulary");
    }
  }
  return OkStatus();
}

StatusOr<std::vector<TokenId>> BpeTokenizer::Encode(const MarkedText& input) const {
  const std::string_view text = input.text;
  if (text.size() > kMaxTextBytes) return InvalidArgument("text", "is longer than 1 GiB");
  if (const auto bad = FindInvalidUtf8(text)) {
    return InvalidArgument("text", "is not UTF-8 at byte " + std::to_string(*bad));
  }
  RENGA_RETURN_IF_ERROR(CheckTrusted(input));
  std::vector<TokenId> ids;
  BpeMerger::Scratch scratch;
  size_t done = 0;
  for (const AddedTokens::Match& match : added_.Find(text, input.trusted)) {
    EncodeGap(text.substr(done, match.begin - done), scratch, ids);
    ids.push_back(match.id);
    done = match.end;
  }
  EncodeGap(text.substr(done), scratch, ids);
  return ids;
}

void BpeTokenizer::EncodeGap(std::string_view text, BpeMerger::Scratch& scratch,
                             std::vector<TokenId>& ids) const {
  if (text.empty()) return;
  if (!nfc_) {
    EncodePieces(text, scratch, ids);
    return;
  }
  const std::string normal = NormalizeNfc(text);
  size_t done = 0;
  for (const AddedTokens::Match& match : normalized_added_.Find(normal, {})) {
    EncodePieces(std::string_view(normal).substr(done, match.begin - done), scratch, ids);
    ids.push_back(match.id);
    done = match.end;
  }
  EncodePieces(std::string_view(normal).substr(done), scratch, ids);
}

void BpeTokenizer::EncodePieces(std::string_view text, BpeMerger::Scratch& scratch,
                                std::vector<TokenId>& ids) const {
  std::vector<std::string_view> pieces;
  SplitText(split_, text, pieces);
  for (const std::string_view piece : pieces) {
    const auto whole = whole_pieces_.find(piece);
    if (whole != whole_pieces_.end()) {
      ids.push_back(whole->second);
    } else {
      merger_.Append(piece, scratch, ids);
    }
  }
}

std::string_view BpeTokenizer::Bytes(TokenId id) const {
  RENGA_CHECK(InRange(id, bytes_.size()));
  return bytes_[static_cast<size_t>(id)];
}

bool BpeTokenizer::IsControl(TokenId id) const {
  RENGA_CHECK(InRange(id, bytes_.size()));
  return control_[static_cast<size_t>(id)];
}

}  // namespace renga
