// The passes over a row of logits: every instruction set gives the bits of the portable
// one, and that one the values of the definition.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/sampler.h"

namespace renga {
namespace {

constexpr int64_t kSizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 127, 1000, 5001};
constexpr float kInf = std::numeric_limits<float>::infinity();

int64_t BlocksOf(int64_t n) { return (n + kMaxBlock - 1) / kMaxBlock; }

template <class Check>
void ForRows(const Check& check) {
  for (const int64_t size : kSizes) {
    for (int kind = 0; kind < kRowKinds; ++kind) {
      SCOPED_TRACE(std::to_string(size) + " of kind " + std::to_string(kind));
      check(RowOfKind(kind, size, static_cast<uint32_t>(size + kind)));
    }
  }
}

TEST(SampleRows, BlockMaximaAreTheLargestOfEach64) {
  ForRows([](const std::vector<float>& row) {
    const int64_t n = static_cast<int64_t>(row.size());
    for (const CpuOps* ops : MachineOps()) {
      GuardedFloats maxima(BlocksOf(n));
      const float max = ops->block_max(row.data(), n, maxima.data());
      EXPECT_EQ(max, *std::max_element(row.begin(), row.end())) << ops->name;
      for (int64_t b = 0; b < BlocksOf(n); ++b) {
        const auto first = row.begin() + b * kMaxBlock;
        EXPECT_EQ(maxima[b],
                  *std::max_element(first, first + std::min(kMaxBlock, n - b * 64)))
            << ops->name;
      }
      EXPECT_TRUE(maxima.GuardsIntact()) << ops->name;
    }
  });
}

TEST(SampleRows, TheMaximumOfZerosHasOneSign) {
  for (const CpuOps* ops : MachineOps()) {
    for (size_t at = 0; at < 20; ++at) {
      std::vector<float> row(20, -0.0f);
      row[at] = 0.0f;
      GuardedFloats maxima(1);
      EXPECT_FALSE(std::signbit(ops->block_max(row.data(), 20, maxima.data())));
      EXPECT_FALSE(std::signbit(maxima[0])) << ops->name;
    }
    const std::vector<float> row(20, -0.0f);
    GuardedFloats maxima(1);
    EXPECT_FALSE(std::signbit(ops->block_max(row.data(), 20, maxima.data())));
  }
}

TEST(SampleRows, OneBadLogitAnywhereIsFound) {
  for (const CpuOps* ops : MachineOps()) {
    for (const float bad : {kInf, std::nanf(""), -std::nanf("")}) {
      for (const size_t at : {0u, 15u, 16u, 63u, 64u, 130u}) {
        std::vector<float> row(131, 1.0f);
        row[at] = bad;
        GuardedFloats maxima(3);
        EXPECT_TRUE(std::isnan(ops->block_max(row.data(), 131, maxima.data())))
            << ops->name << " " << at;
      }
    }
    const std::vector<float> row(70, -kInf);
    GuardedFloats maxima(2);
    EXPECT_EQ(ops->block_max(row.data(), 70, maxima.data()), -kInf);
  }
}

TEST(SampleRows, AtLeastFindsTheSameLogitsInOrder) {
  ForRows([](const std::vector<float>& row) {
    const int64_t n = static_cast<int64_t>(row.size());
    std::vector<float> sorted = row;
    std::sort(sorted.begin(), sorted.end());
    for (const float threshold : {sorted.front(), sorted[sorted.size() / 2],
                                  sorted.back(), sorted.back() + 1.0f, -kInf}) {
      std::vector<int32_t> expected;
      for (size_t i = 0; i < row.size(); ++i) {
        if (row[i] >= threshold) expected.push_back(static_cast<int32_t>(i));
      }
      for (const CpuOps* ops : MachineOps()) {
        GuardedFloats maxima(BlocksOf(n));
        ops->block_max(row.data(), n, maxima.data());
        GuardedFloats values(n + 16);
        std::vector<int32_t> ids(row.size() + 17, -7);
        const int64_t count = ops->at_least({.x = row.data(),
                                             .n = n,
                                             .maxima = maxima.data(),
                                             .threshold = threshold,
                                             .ids = ids.data(),
                                             .values = values.data()});
        ASSERT_EQ(count, static_cast<int64_t>(expected.size())) << ops->name;
        EXPECT_EQ(ids.back(), -7) << ops->name;
        EXPECT_TRUE(values.GuardsIntact()) << ops->name;
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(ids[i], expected[i]) << ops->name;
          EXPECT_EQ(values[static_cast<int64_t>(i)],
                    row[static_cast<size_t>(expected[i])]);
        }
      }
    }
  });
}

TEST(SampleRows, WeightsAreExactSharesOfTheBestWithOneArithmetic) {
  ForRows([](const std::vector<float>& row) {
    const int64_t n = static_cast<int64_t>(row.size());
    const float max = *std::max_element(row.begin(), row.end());
    for (const float scale : {1.44269504f, 0.0144269504f, 1.44269504e6f}) {
      std::vector<uint32_t> expected;
      for (const CpuOps* ops : MachineOps()) {
        std::vector<uint32_t> weights(row.size() + 1, 77u);
        const uint64_t sum =
            ops->sample_weights(row.data(), n, max, scale, weights.data());
        EXPECT_EQ(weights.back(), 77u) << ops->name;
        weights.pop_back();
        uint64_t exact = 0;
        for (const uint32_t weight : weights) exact += weight;
        EXPECT_EQ(sum, exact) << ops->name;
        if (expected.empty()) expected = weights;
        ASSERT_EQ(weights, expected) << ops->name;
      }
      for (size_t i = 0; i < row.size(); ++i) {
        const double depth = (static_cast<double>(max) - static_cast<double>(row[i])) *
                             static_cast<double>(scale);
        const double weight = std::exp2(-depth) * 0x1.0p30;
        EXPECT_NEAR(expected[i], weight, 0.51 + weight * 3e-6) << i;
      }
    }
  });
}

TEST(SampleRows, TheSumOfExpsHasOneArithmetic) {
  ForRows([](const std::vector<float>& row) {
    const int64_t n = static_cast<int64_t>(row.size());
    const float max = *std::max_element(row.begin(), row.end());
    double exact = 0.0;
    for (const float logit : row) {
      exact += std::exp(static_cast<double>(logit) - static_cast<double>(max));
    }
    const double expected = MachineOps()[0]->exp_sum(row.data(), n, max);
    EXPECT_NEAR(expected / exact, 1.0, 5e-7);
    for (const CpuOps* ops : MachineOps()) {
      EXPECT_EQ(ops->exp_sum(row.data(), n, max), expected) << ops->name;
    }
  });
}

}  // namespace
}  // namespace renga
