// The AMX products over emulated tiles, bit for bit against the portable ones, and the
// faults that the emulation would find. On a CPU with AMX matmul_test.cc runs them on its
// own tiles.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/kernels/emulated_amx.h"
#include "tests/kernels/kernel_cases.h"

#define RENGA_ISA amx_test
#include "tests/kernels/tiles_emulated.h"

namespace renga {

void IllegalTile(const char* what) {
  std::fprintf(stderr, "illegal use of tiles: %s\n", what);
  std::abort();
}

namespace {

using amx_test::EmulatedTiles;
using amx_test::kTileConfig;
using amx_test::TileConfig;

struct Products {
  WeightType type;
  void (*emulated)(const MatmulArgs& args);
  void (*portable)(const MatmulArgs& args);
};

// Skips where the emulation, which is compiled for AVX-512, cannot run.
class AmxMatmul : public testing::Test {
 protected:
  void SetUp() override {
    if (FindCpuOps("avx512") == nullptr) GTEST_SKIP() << "this CPU has no AVX-512";
  }

  const CpuOps& portable_ = *FindCpuOps("portable");
  const Products products_[3] = {
      {WeightType::kQ4_1, EmulatedMatmulQ4_1, portable_.matmul_q4_1},
      {WeightType::kQ4_K, EmulatedMatmulQ4K, portable_.matmul_q4_k},
      {WeightType::kQ8_0, EmulatedMatmulQ8_0, portable_.matmul_q8_0}};
};

enum class Mix { kCoarse, kFine, kBoth };

// Rows whose blocks are all coarse, all fine, or both in one group of 16 rows.
QuantStore MakeCodes(std::vector<float> x, int64_t cols, Mix mix) {
  const int64_t rows = static_cast<int64_t>(x.size()) / cols;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < cols; ++k) {
      if ((k / 32 + row / 3) % 5 == 0) x[static_cast<size_t>(row * cols + k)] *= 8.0f;
    }
  }
  const float coarse = mix == Mix::kCoarse ? 1e9f : mix == Mix::kFine ? 0.0f : 2.56f;
  QuantStore codes(rows, cols);
  QuantiseInto(*FindCpuOps("portable"), x, cols, coarse, codes);
  return codes;
}

QuantStore MakeCodes(int64_t rows, int64_t cols, Mix mix, uint32_t seed) {
  return MakeCodes(RandomFloats(rows * cols, seed), cols, mix);
}

struct Case {
  int64_t rows;
  int64_t outputs;
  int64_t cols;
  Mix mix = Mix::kBoth;
  bool add = false;
};

// Both products of one case, into rows that are longer than the outputs.
void ExpectSameBits(const Products& products, const Case& test) {
  SCOPED_TRACE(TypeName(products.type) + " rows " + std::to_string(test.rows) +
               " outputs " + std::to_string(test.outputs) + " cols " +
               std::to_string(test.cols));
  const TestWeights w = RandomWeights(products.type, test.outputs, test.cols, 21);
  QuantStore codes = MakeCodes(test.rows, test.cols, test.mix, 22);
  const int64_t stride = test.outputs + 3;
  GuardedFloats expected(test.rows * stride);
  GuardedFloats out(test.rows * stride);
  if (test.add) {
    const std::vector<float> base = RandomFloats(test.rows * stride, 23);
    std::copy(base.begin(), base.end(), expected.data());
    std::copy(base.begin(), base.end(), out.data());
  }
  MatmulArgs args{.panels = w.panels.data(),
                  .panel_count = (test.outputs + 31) / 32,
                  .cols = test.cols,
                  .outputs = test.outputs,
                  .quant = codes.rows(),
                  .rows = test.rows,
                  .out = expected.data(),
                  .out_stride = stride,
                  .add = test.add};
  products.portable(args);
  args.out = out.data();
  products.emulated(args);
  EXPECT_TRUE(out.GuardsIntact());
  ASSERT_TRUE(out.SameBits(expected));
}

TEST_F(AmxMatmul, AnyNumberOfRowsHasTheBitsOfPortable) {
  for (const Products& products : products_) {
    for (int64_t rows = 1; rows <= 40; ++rows) ExpectSameBits(products, {rows, 33, 256});
  }
}

TEST_F(AmxMatmul, MoreRowsThanAStripHaveTheBitsOfPortable) {
  for (const Products& products : products_) {
    for (const int64_t rows : {64, 65, 77, 128, 139}) {
      ExpectSameBits(products, {rows, 32, 256});
    }
  }
}

TEST_F(AmxMatmul, AnyNumberOfOutputsHasTheBitsOfPortable) {
  for (const Products& products : products_) {
    for (const int64_t outputs : {1, 15, 16, 17, 31, 32, 64, 70}) {
      ExpectSameBits(products, {20, outputs, 256});
    }
  }
}

// One block, fewer than are kept ahead, a chunk and just over one, several.
TEST_F(AmxMatmul, AnyNumberOfBlocksHasTheBitsOfPortable) {
  for (const Products& products : products_) {
    const bool is_super = products.type == WeightType::kQ4_K;
    for (const int64_t blocks : {1, 2, 3, 4, 15, 16, 17, 18, 33, 48, 72}) {
      ExpectSameBits(products, {18, 32, blocks * (is_super ? 256 : 32)});
    }
  }
}

TEST_F(AmxMatmul, CoarseAndFineBlocksHaveTheBitsOfPortable) {
  for (const Products& products : products_) {
    for (const Mix mix : {Mix::kCoarse, Mix::kFine, Mix::kBoth}) {
      for (const int64_t rows : {9, 16, 32}) {
        ExpectSameBits(products, {.rows = rows, .outputs = 32, .cols = 768, .mix = mix});
      }
    }
  }
}

TEST_F(AmxMatmul, AddAddsToWhatIsThere) {
  for (const Products& products : products_) {
    ExpectSameBits(products, {.rows = 27, .outputs = 45, .cols = 512, .add = true});
  }
}

// A row that holds a NaN shows it, and no other row does.
TEST_F(AmxMatmul, ANaNStaysInItsRow) {
  constexpr int64_t kRows = 16, kOutputs = 32, kCols = 256;
  for (const Products& products : products_) {
    const TestWeights w = RandomWeights(products.type, kOutputs, kCols, 24);
    std::vector<float> x = RandomFloats(kRows * kCols, 25);
    x[(kRows - 1) * kCols + 40] = std::numeric_limits<float>::quiet_NaN();
    QuantStore codes = MakeCodes(std::move(x), kCols, Mix::kBoth);
    GuardedFloats out(kRows * kOutputs);
    products.emulated({.panels = w.panels.data(),
                       .panel_count = 1,
                       .cols = kCols,
                       .outputs = kOutputs,
                       .quant = codes.rows(),
                       .rows = kRows,
                       .out = out.data(),
                       .out_stride = kOutputs});
    for (int64_t i = 0; i < kRows * kOutputs; ++i) {
      ASSERT_EQ(std::isnan(out[i]), i / kOutputs == kRows - 1) << TypeName(products.type);
    }
  }
}

// ---- The emulation itself ----------------------------------------------------------

TileConfig With(void (*change)(TileConfig& config)) {
  TileConfig config = kTileConfig;
  change(config);
  return config;
}

void Configure(const TileConfig& config) {
  alignas(64) const TileConfig aligned = config;
  EmulatedTiles tiles(aligned);
}

TEST(EmulatedTilesDeathTest, AnIllegalConfigurationEndsTheProgram) {
  EXPECT_DEATH(Configure(With([](TileConfig& c) { c.palette = 0; })), "palette");
  EXPECT_DEATH(Configure(With([](TileConfig& c) { c.start_row = 1; })), "middle");
  EXPECT_DEATH(Configure(With([](TileConfig& c) { c.reserved[3] = 1; })), "reserved");
  EXPECT_DEATH(Configure(With([](TileConfig& c) { c.rows[0] = 17; })), "16 rows");
  EXPECT_DEATH(Configure(With([](TileConfig& c) { c.row_bytes[0] = 65; })), "64 bytes");
  EXPECT_DEATH(Configure(With([](TileConfig& c) { c.rows[2] = 0; })), "no size");
  EXPECT_DEATH(Configure(With([](TileConfig& c) { c.rows[8] = 1; })), "8 tiles");
}

template <int kDots, int kCodes, int kWeights>
void MultiplyTiles(const TileConfig& config) {
  alignas(64) const TileConfig aligned = config;
  EmulatedTiles tiles(aligned);
  tiles.Multiply<kDots, kCodes, kWeights>();
}

TEST(EmulatedTilesDeathTest, TilesThatDoNotFitEachOtherEndTheProgram) {
  MultiplyTiles<0, 2, 4>(kTileConfig);
  EXPECT_DEATH((MultiplyTiles<0, 0, 4>(kTileConfig)), "stands twice");
  EXPECT_DEATH((MultiplyTiles<0, 2, 5>(kTileConfig)), "not configured");
  EXPECT_DEATH((MultiplyTiles<0, 2, 4>(With([](TileConfig& c) { c.rows[2] = 15; }))),
               "rows of the codes");
  EXPECT_DEATH((MultiplyTiles<0, 2, 4>(With([](TileConfig& c) { c.rows[4] = 7; }))),
               "differ in k");
  EXPECT_DEATH((MultiplyTiles<0, 2, 4>(With([](TileConfig& c) { c.row_bytes[4] = 60; }))),
               "weight rows");
  EXPECT_DEATH((MultiplyTiles<0, 2, 4>(With([](TileConfig& c) { c.row_bytes[2] = 30; }))),
               "whole words");
}

// Signed codes times unsigned weights.
TEST(EmulatedTiles, MultiplyTakesTheSignsOfItsOperands) {
  alignas(64) const TileConfig config = kTileConfig;
  EmulatedTiles tiles(config);
  std::vector<uint8_t> codes(16 * 32, 0xFF);
  std::vector<uint8_t> weights(8 * 64, 0xFF);
  std::vector<int32_t> dots(16 * 16, 5);
  tiles.Load<0>(dots.data(), 64);
  tiles.Load<2>(codes.data(), 32);
  tiles.Load<4>(weights.data(), 64);
  tiles.Multiply<0, 2, 4>();
  tiles.Store<0>(dots.data(), 64);
  for (const int32_t dot : dots) ASSERT_EQ(dot, 5 - 32 * 255);
}

}  // namespace
}  // namespace renga
