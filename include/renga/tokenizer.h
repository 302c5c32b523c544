// Tokenizer: text <-> token ids. One implementation per vocabulary kind in src/text.
//
// Thread safety: immutable after load; every method may be called from any thread.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "renga/status.h"
#include "renga/types.h"

namespace renga {

// A half-open range of bytes.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

// Text of mixed origin. Control tokens are recognised only inside `trusted` ranges (text
// that the chat template itself wrote), which are sorted and do not overlap; everything
// else came from outside and is plain text, whatever it looks like.
struct MarkedText {
  std::string text;
  std::vector<ByteRange> trusted;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // UTF-8 in; a byte that is not UTF-8 is an InvalidArgument. U+0000 is legal.
  virtual StatusOr<std::vector<TokenId>> Encode(const MarkedText& text) const = 0;

  // The bytes that `id` stands for; empty for control tokens. REQUIRES: a valid id.
  virtual std::string_view Bytes(TokenId id) const = 0;

  virtual bool IsControl(TokenId id) const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual TokenId bos_token_id() const = 0;  // -1: none.
  virtual bool add_bos_token() const = 0;    // Plain-text prompts begin with BOS.
  // Tokens that end an answer (end of text, end of turn).
  virtual std::span<const TokenId> end_token_ids() const = 0;
};

}  // namespace renga
