// The file that `llama-perplexity --kl-divergence-base FILE` writes: a text in windows of
// n_ctx tokens and, for the second half of each, the predictions of a base model.
//
//   "_logits_" | int32 n_ctx | int32 n_vocab | int32 n_chunk | int32
//   tokens[n_chunk][n_ctx] per window, per position n_ctx/2 .. n_ctx-2:
//     float scale | float least | uint16 codes[n_vocab, rounded up to even]
//     log p(i) = scale * codes[i] + least
//
// Thread rule: one thread at a time.

#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "renga/status.h"
#include "renga/types.h"

namespace renga {

// What a base model predicts at one position.
struct BasePrediction {
  float scale = 0.0f;
  float least = 0.0f;
  std::vector<uint16_t> codes;  // [n_vocab, rounded up to even]

  float LogProbability(size_t i) const {
    return scale * static_cast<float>(codes[i]) + least;
  }
};

class KlBaseFile {
 public:
  static StatusOr<KlBaseFile> Open(const std::string& path);

  int32_t window() const { return window_; }
  int32_t vocab() const { return vocab_; }
  int32_t windows() const { return windows_; }
  int32_t first_scored() const { return window_ / 2; }
  int32_t scored() const { return window_ - 1 - window_ / 2; }  // Of each window.
  std::span<const TokenId> Tokens(int32_t index) const {
    return std::span(tokens_).subspan(static_cast<size_t>(index) * Size(window_),
                                      Size(window_));
  }

  // The next position's, in the file's order.
  Status Next(BasePrediction& prediction);

 private:
  static size_t Size(int32_t count) { return static_cast<size_t>(count); }

  std::ifstream file_;
  int32_t window_ = 0;
  int32_t vocab_ = 0;
  int32_t windows_ = 0;
  std::vector<TokenId> tokens_;
};

// KL(base || model) at one position as llama-perplexity computes it: tokens with a base
// probability below exp(-16), which the codes cannot tell apart, do not count.
double KlToBase(const BasePrediction& base, std::span<const float> logits);

}  // namespace renga
