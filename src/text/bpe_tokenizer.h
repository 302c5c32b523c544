// Byte-level BPE: the tokenizer of GPT-2, SmolLM, Llama 3, Qwen 2 and their like.
//
// Encode finds the added tokens first; the text between two of them is cut by the
// pre-tokenizer as ONE string, whoever wrote its parts, so the ids are those that the
// reference gives for the whole string. Linear up to a log, for any text.
//
// The reference differs in one point by design: a user-defined token in text from outside
// is found (see added_tokens.h), a control token is not.
//
// Thread safety: immutable after construction.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "renga/tokenizer.h"
#include "text/added_tokens.h"
#include "text/bpe_merger.h"
#include "text/pre_tokenizer.h"

namespace renga {

// A vocabulary as a model file states it; nothing in it is trusted.
struct BpeVocabulary {
  std::vector<std::string> tokens;  // By id. Merged pieces in the GPT-2 byte alphabet.
  std::vector<AddedToken> added;    // Their contents replace tokens[id].
  std::vector<std::string> merges;  // "left right", by rank.
  SplitKind split = SplitKind::kGpt2;
  bool nfc = false;            // Normalise text to NFC first.
  bool ignore_merges = false;  // A piece that is a token as a whole is taken as it is.
  TokenId bos = -1;            // -1: none.
  bool add_bos = false;
  std::vector<TokenId> end_tokens;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // Refuses, naming the field: ids out of range, empty or doubled tokens, merges of
  // tokens that do not exist, merges that make a control token.
  static StatusOr<std::unique_ptr<BpeTokenizer>> Make(const BpeVocabulary& vocabulary);

  StatusOr<std::vector<TokenId>> Encode(const MarkedText& text) const override;
  std::string_view Bytes(TokenId id) const override;
  bool IsControl(TokenId id) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_.size()); }
  TokenId bos_token_id() const override { return bos_; }
  bool add_bos_token() const override { return add_bos_; }
  std::span<const TokenId> end_token_ids() const override { return end_tokens_; }

 private:
  using TokenIds = std::unordered_map<std::string_view, TokenId>;

  BpeTokenizer() = default;
  Status TakeTokens(const BpeVocabulary& vocabulary, TokenIds& ids);
  Status TakeAdded(const BpeVocabulary& vocabulary);
  void TakeByteTokens(const BpeVocabulary& vocabulary, const TokenIds& ids);
  Status TakeMerges(const BpeVocabulary& vocabulary, const TokenIds& ids);
  Status TakeSpecialIds(const BpeVocabulary& vocabulary);

  // Text between added tokens.
  void EncodeGap(std::string_view text, BpeMerger::Scratch& scratch,
                 std::vector<TokenId>& ids) const;
  void EncodePieces(std::string_view text, BpeMerger::Scratch& scratch,
                    std::vector<TokenId>& ids) const;

  std::vector<std::string> bytes_;  // By id; empty for control tokens.
  std::vector<bool> control_;       // By id.
  AddedTokens added_;               // Looked for in the text as it came.
  AddedTokens normalized_added_;    // Looked for after normalisation.
  BpeMerger merger_;
  std::unordered_map<std::string_view, TokenId> whole_pieces_;  // With ignore_merges.
  SplitKind split_ = SplitKind::kGpt2;
  bool nfc_ = false;
  TokenId bos_ = -1;
  bool add_bos_ = false;
  std::vector<TokenId> end_tokens_;
};

}  // namespace renga
