// The product kernels under the emulator: the checks that a GPU runs too, and what only
// the emulator sees: reports, other orders of threads, traffic.

#include "kernels/cuda/product.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/product_shape.h"
#include "tests/cuda/emulated/emulated_kernels.h"
#include "tests/cuda/expect_checks.h"
#include "tests/cuda/product_cases.h"
#include "tests/simt/simt_device.h"

namespace renga::test {
namespace {

using cuda::DeviceWeightType;

std::vector<EmulatedKernel> Kernels() { return KernelsOf(EmulatedProductKernels()); }

TEST(Product, MatchesDoublePrecisionAndDoesNotDependOnCompany) {
  SimtDevice device(Kernels(), {.simt = {.counters = false}});
  ExpectAllOk(CheckProduct(device, CheckSize::kSmall));
  EXPECT_TRUE(device.reports().empty());
}

TEST(Product, EmbedGivesTheFilesValues) {
  SimtDevice device(Kernels());
  ExpectAllOk(CheckEmbed(device, CheckSize::kSmall));
  EXPECT_TRUE(device.reports().empty());
}

TEST(Product, DequantiseGivesTheHalvesThatProductsUse) {
  SimtDevice device(Kernels());
  ExpectAllOk(CheckDequantise(device, CheckSize::kSmall));
  EXPECT_TRUE(device.reports().empty());
}

TEST(Product, OtherOrdersOfThreadsChangeNoBit) {
  for (const WeightType type :
       {WeightType::kQ4_1, WeightType::kQ4_K, WeightType::kQ8_0}) {
    std::vector<std::vector<float>> first;
    for (const uint32_t seed : {0u, 1u, 77u}) {
      SimtDevice device(Kernels(), {.simt = {.seed = seed}});
      ProductRig rig(device, type, 72, 768, 20);
      std::vector<std::vector<float>> results;
      for (const int32_t rows : {1, 6, 13, 20}) {
        results.push_back(rig.Multiply({.rows = rows, .most_rows = rows}));
      }
      results.push_back(rig.Multiply({.rows = 20, .most_rows = 12288}));
      if (seed == 0) first = results;
      EXPECT_EQ(results, first) << WeightName(type) << " seed " << seed;
      EXPECT_TRUE(device.reports().empty());
    }
  }
}

TEST(Product, NothingIsWrittenWhereThereAreNoRows) {
  SimtDevice device(Kernels());
  ProductRig rig(device, WeightType::kQ4_1, 40, 96, 1);
  for (const int32_t most : {1, 8, 16, 64, 12288}) {
    EXPECT_TRUE(rig.Multiply({.rows = 0, .most_rows = most}).empty());
    EXPECT_EQ(rig.wrong(), "");
  }
}

TEST(Product, LaunchesDifferInSpeedAlone) {
  const cuda::ProductArgs args{.outputs = 4096, .cols = 4096};
  const auto kernel = [&](int32_t most_rows) {
    return cuda::ProductLaunch(DeviceWeightType::kQ4, args, most_rows).kernel;
  };
  EXPECT_EQ(kernel(1), cuda::kProduct4Q4);
  EXPECT_EQ(kernel(4), cuda::kProduct4Q4);
  EXPECT_EQ(kernel(5), cuda::kProduct8Q4);
  EXPECT_EQ(kernel(9), cuda::kProduct16Q4);
  EXPECT_EQ(kernel(17), cuda::kProduct64Q4);
  EXPECT_EQ(kernel(256), cuda::kProduct64Q4) << "64 squares of 128 are too few";
  EXPECT_EQ(kernel(512), cuda::kProduct128Q4);
}

// What a product read, as multiples of what it has to.
struct Ratios {
  double weights = 0.0;          // From memory.
  double weight_requests = 0.0;  // From the L2 cache.
  double x = 0.0;                // From the L2 cache, of x once.
  double banks = 0.0;
};

Ratios RatiosOf(WeightType type, int32_t outputs, int32_t cols, int32_t rows,
                int32_t most_rows) {
  SimtDevice device(Kernels());
  ProductRig rig(device, type, outputs, cols, rows);
  device.Name(rig.packed(), "weights");
  device.Name(rig.x(), "x");
  rig.Multiply({.rows = rows, .most_rows = most_rows});
  const SimtCounters& counters = device.last_counters();
  const Traffic& weights = counters.buffers.at("weights").read;
  const Traffic& x = counters.buffers.at("x").read;
  if (kSimtHooks) {
    EXPECT_GT(weights.sectors, 0) << "nothing was counted";
    EXPECT_GT(x.sectors, 0) << "nothing was counted";
  }
  const auto needed = static_cast<double>(
      cuda::DeviceWeightBytes(cuda::DeviceTypeOf(type), outputs, cols));
  return {.weights = 32.0 * static_cast<double>(weights.distinct_sectors) / needed,
          .weight_requests = 32.0 * static_cast<double>(weights.sectors) / needed,
          .x = 32.0 * static_cast<double>(x.sectors) / (2.0 * rows * cols),
          .banks = counters.WavefrontRatio()};
}

TEST(Product, FewRowsReadTheWeightsOnce) {
  for (const WeightType type :
       {WeightType::kF16, WeightType::kQ8_0, WeightType::kQ4_1, WeightType::kQ4_K}) {
    for (const int32_t rows : {1, 8, 16}) {
      const Ratios ratios = RatiosOf(type, 64, 2048, rows, rows);
      const int32_t blocks = rows <= 4 ? 4 : 2;
      // kQ4K reads the heads of a super block once a run: 256 of 2368 bytes instead
      // of 64.
      const double requests = type == WeightType::kQ4_K ? 1.09 : 1.0;
      EXPECT_LE(ratios.weights, 1.0) << WeightName(type) << ' ' << rows;
      EXPECT_LE(ratios.weight_requests, requests) << WeightName(type) << ' ' << rows;
      EXPECT_LE(ratios.x, blocks) << WeightName(type) << ' ' << rows;
      EXPECT_LE(ratios.banks, 1.05) << WeightName(type) << ' ' << rows;
    }
  }
}

TEST(Product, WeightsOfQ4TakeLittleMoreThanTheirBits) {
  const Ratios ratios = RatiosOf(WeightType::kQ4_1, 64, 576, 1, 1);
  const double bits =
      8.0 * ratios.weights *
      static_cast<double>(cuda::DeviceWeightBytes(DeviceWeightType::kQ4, 64, 576)) /
      (64.0 * 576.0);
  EXPECT_LE(bits, 1.1 * 5.0);
}

TEST(Product, ManyRowsReadTheWeightsOncePerSquare) {
  for (const WeightType type :
       {WeightType::kF16, WeightType::kQ8_0, WeightType::kQ4_1, WeightType::kQ4_K}) {
    for (const int32_t most_rows : {64, 12288}) {
      const Ratios ratios = RatiosOf(type, 128, 512, 64, most_rows);
      const double requests = type == WeightType::kQ4_K ? 1.09 : 1.0;
      EXPECT_LE(ratios.weights, 1.0) << WeightName(type) << ' ' << most_rows;
      EXPECT_LE(ratios.weight_requests, requests) << WeightName(type) << ' ' << most_rows;
      EXPECT_LE(ratios.x, most_rows == 64 ? 2.0 : 1.0) << WeightName(type);
      EXPECT_LE(ratios.banks, 1.05) << WeightName(type) << ' ' << most_rows;
    }
  }
}

}  // namespace
}  // namespace renga::test
