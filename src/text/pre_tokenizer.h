// Cuts text into the pieces inside which BPE merges.
//
// The reference describes these cuts by regular expressions with backtracking. Here they
// are one hand-written scan over character classes: linear in the text, no recursion, no
// match limit to tune (a run of one class of any length is an ordinary input). A test
// compares the scan with the expressions themselves.
//
// Thread safety: pure function.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace renga {

enum class SplitKind : uint8_t {
  kGpt2,    // '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kSmolLm,  // Each \p{N} alone; then the GPT-2 cut of what lies between.
  kLlama3,  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
            //   | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  kQwen2,   // As kLlama3, with \p{N} instead of \p{N}{1,3}.
};

// Appends the pieces of `text`, which together are all of it, to `pieces`.
// REQUIRES: valid UTF-8.
void SplitText(SplitKind kind, std::string_view text,
               std::vector<std::string_view>& pieces);

// The split that GGUF calls `name` ("smollm", "gpt-2", "llama-bpe", "qwen2", ...).
std::optional<SplitKind> SplitKindFromGgufName(std::string_view name);

}  // namespace renga
