// The fitted blocks: how far from the weights they are, and against plain rounding.

#include "quantize/block_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/ggml_type.h"
#include "quantize/block_codec.h"
#include "tests/quantize/weights_support.h"

namespace renga {
namespace {

// Sum of w * error^2 as block_fit.h defines it, over all blocks of 32.
double WeightedError(const std::vector<float>& x, const std::vector<double>& values) {
  double total = 0;
  for (size_t first = 0; first < x.size(); first += 32) {
    double squares = 0;
    for (size_t i = first; i < first + 32; ++i) squares += double{x[i]} * double{x[i]};
    const double rms = std::sqrt(squares / 32);
    for (size_t i = first; i < first + 32; ++i) {
      const double error = values[i] - double{x[i]};
      total += (std::fabs(double{x[i]}) + rms) * error * error;
    }
  }
  return total;
}

std::vector<double> ThroughType(uint32_t type, const std::vector<float>& x) {
  std::vector<std::byte> row(
      static_cast<size_t>(RowBytes(type, static_cast<int64_t>(x.size()))));
  EXPECT_TRUE(WriteRow(type, x, row.data()));
  std::vector<float> values(x.size());
  ReadRow(type, row.data(), values);
  return {values.begin(), values.end()};
}

// What everybody's first quantiser does.
std::vector<double> PlainQ4_0(const std::vector<float>& x) {
  std::vector<double> values(x.size());
  for (size_t first = 0; first < x.size(); first += 32) {
    double furthest = 0;
    for (size_t i = first; i < first + 32; ++i) {
      if (std::fabs(double{x[i]}) > std::fabs(furthest)) furthest = double{x[i]};
    }
    const double d = furthest / -8;
    for (size_t i = first; i < first + 32; ++i) {
      const double code = d == 0 ? 0 : std::nearbyint(double{x[i]} / d);
      values[i] = d * std::clamp(code, -8.0, 7.0);
    }
  }
  return values;
}

std::vector<double> PlainQ4_1(const std::vector<float>& x) {
  std::vector<double> values(x.size());
  for (size_t first = 0; first < x.size(); first += 32) {
    const auto begin = x.begin() + static_cast<int64_t>(first);
    const auto [low, high] = std::minmax_element(begin, begin + 32);
    const double d = (double{*high} - double{*low}) / 15;
    for (size_t i = first; i < first + 32; ++i) {
      const double code = d == 0 ? 0 : std::nearbyint((double{x[i]} - double{*low}) / d);
      values[i] = d * code + double{*low};
    }
  }
  return values;
}

TEST(BlockFit, TheSearchBeatsPlainRounding) {
  const std::vector<float> x = test::WeightLike(256 * 64, 3);
  const double q4_0 = WeightedError(x, ThroughType(kGgmlQ4_0, x));
  const double q4_1 = WeightedError(x, ThroughType(kGgmlQ4_1, x));
  const double q4_k = WeightedError(x, ThroughType(kGgmlQ4K, x));
  EXPECT_LT(q4_0, 0.95 * WeightedError(x, PlainQ4_0(x)));
  EXPECT_LT(q4_1, 0.85 * WeightedError(x, PlainQ4_1(x)));
  // Half a bit less per weight than Q4_1, and about as good.
  EXPECT_LT(q4_k, 1.15 * q4_1);
  EXPECT_LT(q4_1, q4_0);
  EXPECT_LT(WeightedError(x, ThroughType(kGgmlQ8_0, x)), q4_k / 100);
}

TEST(BlockFit, Q8CodesAreWithinHalfAStep) {
  const std::vector<float> x = test::WeightLike(32 * 50, 4);
  for (size_t first = 0; first < x.size(); first += 32) {
    const std::span<const float, 32> values(x.data() + first, 32);
    const SymmetricBlock block = FitQ8_0(values);
    std::byte half[2];
    std::memcpy(half, &block.scale, 2);
    const double scale = test::HalfAt(half);
    for (size_t i = 0; i < 32; ++i) {
      // The scale is rounded to a half, so that 127 steps may fall short by a little.
      ASSERT_NEAR(scale * block.codes[i], double{values[i]}, scale * 0.57);
    }
  }
}

TEST(BlockFit, WhatABlockCanSayItSaysExactly) {
  // Values on a grid that each type has.
  std::vector<float> x(256);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = 0.125f * static_cast<float>(static_cast<int>(i * 7 % 16) - 8);
  }
  for (const uint32_t type : {kGgmlQ4_0, kGgmlQ4_1}) {
    EXPECT_LT(WeightedError(x, ThroughType(type, x)), 1e-12) << QuantTypeName(type);
  }
  // Its numbers of 6 bits share one scale: not exact, but close.
  EXPECT_LT(WeightedError(x, ThroughType(kGgmlQ4K, x)), 0.02);
}

TEST(BlockFit, EmptyAndConstantBlocksStayWhatTheyAre) {
  for (const uint32_t type : {kGgmlQ8_0, kGgmlQ4_0, kGgmlQ4_1, kGgmlQ4K}) {
    const std::vector<float> zeros(256, 0.0f);
    EXPECT_EQ(ThroughType(type, zeros), std::vector<double>(256, 0.0));
    for (const float level : {0.75f, -0.75f}) {
      const std::vector<float> constant(256, level);
      for (const double value : ThroughType(type, constant)) {
        ASSERT_NEAR(value, double{level}, 0.004) << QuantTypeName(type);
      }
    }
  }
}

TEST(BlockFit, ValuesOfEverySizeGiveFiniteBlocks) {
  for (const float scale : {1e-38f, 1e-12f, 1e-7f, 1e-5f, 1.0f, 1000.0f}) {
    std::vector<float> x = test::WeightLike(512, 5, scale);
    for (size_t i = 0; i < 32; ++i) x[i] = std::fabs(x[i]) + scale;  // No value below 0.
    for (size_t i = 32; i < 64; ++i) x[i] = -std::fabs(x[i]);
    for (const uint32_t type : {kGgmlQ8_0, kGgmlQ4_0, kGgmlQ4_1, kGgmlQ4K}) {
      const std::vector<double> values = ThroughType(type, x);
      double largest = 0;
      for (const float value : x) largest = std::max(largest, std::fabs(double{value}));
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(std::isfinite(values[i]));
        // Scales below the smallest half are 0.
        ASSERT_NEAR(values[i], double{x[i]}, 0.13 * largest + 2e-6)
            << QuantTypeName(type) << " " << scale;
      }
    }
  }
}

}  // namespace
}  // namespace renga
