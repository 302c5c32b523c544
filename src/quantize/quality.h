// How well a model predicts a text, and how far its predictions are from another's.
//
// Per position, p = softmax(logits) over the whole vocabulary, in double precision:
//   nll = -log p(next token); perplexity = exp(mean nll)
//   KL  = sum of p_ref * (log p_ref - log p), in nats
//
// Thread safety: plain functions and values.

#pragma once

#include <cstdint>
#include <span>

#include "renga/types.h"

namespace renga {

struct PositionScore {
  double nll = 0;
  double reference_nll = 0;  // The rest of a comparison alone.
  double kl = 0;
  bool same_top = false;  // Both find the same token the most likely.
};

// REQUIRES: finite logits, `next` inside the vocabulary.
PositionScore ScorePosition(std::span<const float> logits, TokenId next);
PositionScore ComparePosition(std::span<const float> reference,
                              std::span<const float> logits, TokenId next);

// Whether every logit is a finite number.
bool AllFinite(std::span<const float> logits);

class QualityTotals {
 public:
  void Add(const PositionScore& score);

  int64_t positions() const { return positions_; }
  double perplexity() const;
  double reference_perplexity() const;
  double mean_kl() const;
  // Standard error of mean_kl, the positions taken as independent; 0 below two.
  double kl_standard_error() const;
  double largest_kl() const { return largest_kl_; }
  double same_top_share() const;  // In [0, 1].

 private:
  double Mean(double sum) const;

  int64_t positions_ = 0;
  int64_t same_top_ = 0;
  double nll_ = 0;
  double reference_nll_ = 0;
  double kl_ = 0;
  double kl_squares_ = 0;
  double largest_kl_ = 0;
};

}  // namespace renga
