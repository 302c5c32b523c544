// Scores of positions, from their definitions.

#include "quantize/quality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace renga {
namespace {

std::vector<float> LogitsOf(const std::vector<double>& probabilities, double shift) {
  std::vector<float> logits;
  for (const double p : probabilities) {
    logits.push_back(static_cast<float>(std::log(p) + shift));
  }
  return logits;
}

TEST(Quality, AComparisonFollowsTheDefinition) {
  const std::vector<double> p = {0.5, 0.25, 0.25};
  const std::vector<double> q = {0.2, 0.5, 0.3};
  const PositionScore score = ComparePosition(LogitsOf(p, 40.0), LogitsOf(q, -7.0), 2);
  EXPECT_NEAR(score.nll, -std::log(0.3), 1e-5);
  EXPECT_NEAR(score.reference_nll, -std::log(0.25), 1e-5);
  double kl = 0;
  for (size_t i = 0; i < 3; ++i) kl += p[i] * std::log(p[i] / q[i]);
  EXPECT_NEAR(score.kl, kl, 1e-5);
  EXPECT_FALSE(score.same_top);
  EXPECT_NEAR(ScorePosition(LogitsOf(q, 3.0), 2).nll, score.nll, 1e-5);
}

TEST(Quality, EqualPredictionsHaveNoDistance) {
  const std::vector<float> logits = {1.0f, -2.0f, 30.0f, 1e-3f};
  const PositionScore score = ComparePosition(logits, logits, 1);
  EXPECT_NEAR(score.kl, 0.0, 1e-15);
  EXPECT_TRUE(score.same_top);
}

TEST(Quality, HugeLogitsDoNotOverflow) {
  const std::vector<float> logits = {1e30f, -1e30f, 0.0f};
  EXPECT_EQ(ScorePosition(logits, 0).nll, 0.0);
  EXPECT_GT(ScorePosition(logits, 1).nll, 1e30);
}

TEST(Quality, TotalsAreMeansWithTheirStandardError) {
  QualityTotals totals;
  EXPECT_EQ(totals.kl_standard_error(), 0.0);
  for (const double kl : {0.1, 0.3, 0.2, 0.6}) {
    totals.Add({.nll = 2.0, .reference_nll = 1.0, .kl = kl, .same_top = kl < 0.5});
  }
  EXPECT_EQ(totals.positions(), 4);
  EXPECT_NEAR(totals.perplexity(), std::exp(2.0), 1e-12);
  EXPECT_NEAR(totals.reference_perplexity(), std::exp(1.0), 1e-12);
  EXPECT_NEAR(totals.mean_kl(), 0.3, 1e-12);
  // Sample deviation over the root of the count.
  EXPECT_NEAR(totals.kl_standard_error(), std::sqrt(0.14 / 3 / 4), 1e-12);
  EXPECT_EQ(totals.largest_kl(), 0.6);
  EXPECT_EQ(totals.same_top_share(), 0.75);
}

TEST(Quality, NumbersThatAreNoneAreSeen) {
  EXPECT_TRUE(AllFinite(std::vector<float>{0.0f, -1e38f}));
  EXPECT_FALSE(AllFinite(std::vector<float>{0.0f, std::nanf("")}));
  EXPECT_FALSE(
      AllFinite(std::vector<float>{std::numeric_limits<float>::infinity(), 0.0f}));
}

}  // namespace
}  // namespace renga
