// Log-probabilities against log softmax in double precision.

#include "kernels/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/sampler.h"

namespace renga {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

LogprobResult Of(const CpuOps& ops, Sampler& row, int32_t token, int32_t top,
                 std::vector<ScoredToken>& best) {
  best.assign(static_cast<size_t>(top) + 1, {.token = -9, .logprob = 9.0f});
  const LogprobResult result = TokenLogprobs(ops,
                                             {.logits = row.logits().data(),
                                              .vocab = row.vocab(),
                                              .token = token,
                                              .top = top,
                                              .out = best.data()},
                                             row.scratch());
  EXPECT_EQ(best.back().token, -9) << "wrote behind the end";
  best.resize(static_cast<size_t>(result.top));
  return result;
}

std::vector<double> Reference(const std::vector<float>& row) {
  const double max = static_cast<double>(*std::max_element(row.begin(), row.end()));
  double sum = 0.0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit) - max);
  std::vector<double> logprobs;
  for (const float logit : row) {
    logprobs.push_back(static_cast<double>(logit) - max - std::log(sum));
  }
  return logprobs;
}

TEST(NaturalLog, AgreesWithTheLibraryToTheLastDigits) {
  EXPECT_EQ(NaturalLog(1.0), 0.0);
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> exponent(0.0, 60.0);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::exp2(exponent(random));
    EXPECT_NEAR(NaturalLog(x), std::log(x), 4e-16 * (1.0 + std::log(x))) << x;
  }
}

TEST(Logprobs, AreTheLogSoftmaxOfTheWholeRow) {
  for (const int64_t size : {1, 2, 17, 1000, 49152}) {
    for (int kind = 0; kind < kRowKinds; ++kind) {
      SCOPED_TRACE(std::to_string(size) + " of kind " + std::to_string(kind));
      Sampler row(RowOfKind(kind, size, static_cast<uint32_t>(kind)));
      const std::vector<double> expected = Reference(row.logits());
      std::vector<int32_t> order(row.logits().size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return row.logits()[static_cast<size_t>(a)] >
               row.logits()[static_cast<size_t>(b)];
      });
      const int32_t token = static_cast<int32_t>(size / 3);
      std::vector<ScoredToken> best;
      const LogprobResult result = Of(*BestCpuOps(), row, token, 20, best);
      EXPECT_TRUE(result.finite);
      ASSERT_EQ(best.size(), std::min<size_t>(20, static_cast<size_t>(size)));
      const auto near = [&](float got, int32_t id) {
        const double wanted = expected[static_cast<size_t>(id)];
        if (std::isinf(static_cast<float>(wanted))) {
          EXPECT_EQ(got, -kInf);
        } else {
          EXPECT_NEAR(static_cast<double>(got), wanted, 1e-6 + std::abs(wanted) * 1e-7);
        }
      };
      near(result.logprob, token);
      for (size_t i = 0; i < best.size(); ++i) {
        EXPECT_EQ(best[i].token, order[i]) << i;
        near(best[i].logprob, order[i]);
        EXPECT_LE(best[i].logprob, 0.0f);
      }
    }
  }
}

TEST(Logprobs, TheProbabilitiesOfTheVocabularySumToOne) {
  for (const int kind : {0, 1, 2}) {
    Sampler row(RowOfKind(kind, 1000, 8));
    double sum = 0.0;
    std::vector<ScoredToken> best;
    for (int32_t token = 0; token < 1000; ++token) {
      sum +=
          std::exp(static_cast<double>(Of(*BestCpuOps(), row, token, 0, best).logprob));
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
  }
}

TEST(Logprobs, HaveTheSameBitsOnEveryInstructionSet) {
  for (int kind = 0; kind < kRowKinds; ++kind) {
    Sampler row(RowOfKind(kind, 4999, 4));
    std::vector<ScoredToken> expected;
    const LogprobResult portable = Of(*MachineOps()[0], row, 77, 20, expected);
    for (const CpuOps* ops : MachineOps()) {
      std::vector<ScoredToken> best;
      const LogprobResult result = Of(*ops, row, 77, 20, best);
      EXPECT_EQ(std::memcmp(&result.logprob, &portable.logprob, 4), 0) << ops->name;
      ASSERT_EQ(best.size(), expected.size());
      EXPECT_EQ(std::memcmp(best.data(), expected.data(), best.size() * 8), 0)
          << ops->name << " kind " << kind;
    }
  }
}

TEST(Logprobs, RowsThatAreNotFiniteHaveNone) {
  for (const float bad : {kInf, std::nanf("")}) {
    std::vector<float> logits(90, 1.0f);
    logits[71] = bad;
    Sampler row(logits);
    std::vector<ScoredToken> best;
    EXPECT_FALSE(Of(*BestCpuOps(), row, 0, 5, best).finite);
    EXPECT_TRUE(best.empty());
  }
  Sampler row(std::vector<float>(90, -kInf));
  std::vector<ScoredToken> best;
  EXPECT_FALSE(Of(*BestCpuOps(), row, 0, 5, best).finite);
}

}  // namespace
}  // namespace renga
