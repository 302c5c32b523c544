// The vocabulary of the tiny models: byte-level BPE in the GPT-2 alphabet, with the
// control tokens and the chat template of SmolLM2.
//
// Ids: 0 <|endoftext|>, 1 <|im_start|>, 2 <|im_end|>, 3 + b the single byte b, then the
// merged pieces, then unused fillers up to the wished size.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace renga::test {

inline constexpr int32_t kTinyEndOfText = 0;
inline constexpr int32_t kTinyTurnStart = 1;
inline constexpr int32_t kTinyTurnEnd = 2;
inline constexpr int32_t kTinyFirstByte = 3;

struct TinyVocab {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;  // 1 normal, 3 control, 5 unused.
  std::vector<std::string> merges;
};

// `size` below the natural one (see TinyVocabSize) is that one.
TinyVocab MakeTinyVocab(int32_t size);
// Control tokens, bytes and merged pieces: 300.
int32_t TinyVocabSize();

extern const char kTinyChatTemplate[];

}  // namespace renga::test
