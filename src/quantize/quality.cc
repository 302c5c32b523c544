#include "quantize/quality.h"

#include <algorithm>
#include <cmath>

namespace renga {
namespace {

struct Normaliser {
  double log_sum = 0;  // log p(i) = logits[i] - log_sum.
  size_t top = 0;      // The most likely token, the first of equals.
};

Normaliser Normalise(std::span<const float> logits) {
  const auto top = std::max_element(logits.begin(), logits.end());
  const auto largest = static_cast<double>(*top);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return {largest + std::log(sum), static_cast<size_t>(top - logits.begin())};
}

double LogProbability(std::span<const float> logits, const Normaliser& norm, size_t i) {
  return static_cast<double>(logits[i]) - norm.log_sum;
}

}  // namespace

PositionScore ScorePosition(std::span<const float> logits, TokenId next) {
  const Normaliser norm = Normalise(logits);
  return {.nll = -LogProbability(logits, norm, static_cast<size_t>(next))};
}

PositionScore ComparePosition(std::span<const float> reference,
                              std::span<const float> logits, TokenId next) {
  const Normaliser norm = Normalise(logits);
  const Normaliser reference_norm = Normalise(reference);
  const auto token = static_cast<size_t>(next);
  PositionScore score{.nll = -LogProbability(logits, norm, token),
                      .reference_nll = -LogProbability(reference, reference_norm, token),
                      .same_top = norm.top == reference_norm.top};
  for (size_t i = 0; i < logits.size(); ++i) {
    const double expected = LogProbability(reference, reference_norm, i);
    score.kl += std::exp(expected) * (expected - LogProbability(logits, norm, i));
  }
  return score;
}

bool AllFinite(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(),
                     [](float logit) { return std::isfinite(logit); });
}

void QualityTotals::Add(const PositionScore& score) {
  ++positions_;
  same_top_ += score.same_top ? 1 : 0;
  nll_ += score.nll;
  reference_nll_ += score.reference_nll;
  kl_ += score.kl;
  kl_squares_ += score.kl * score.kl;
  largest_kl_ = std::max(largest_kl_, score.kl);
}

double QualityTotals::Mean(double sum) const {
  return positions_ == 0 ? 0 : sum / static_cast<double>(positions_);
}

double QualityTotals::perplexity() const { return std::exp(Mean(nll_)); }
double QualityTotals::reference_perplexity() const {
  return std::exp(Mean(reference_nll_));
}
double QualityTotals::mean_kl() const { return Mean(kl_); }
double QualityTotals::same_top_share() const {
  return Mean(static_cast<double>(same_top_));
}

double QualityTotals::kl_standard_error() const {
  if (positions_ < 2) return 0;
  const double variance = Mean(kl_squares_) - mean_kl() * mean_kl();
  return std::sqrt(std::max(0.0, variance) / static_cast<double>(positions_ - 1));
}

}  // namespace renga
