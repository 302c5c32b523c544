// The reference is the yardstick, so it is checked against numbers worked out by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/reference/llama.h"
#include "tests/reference/ops.h"

namespace renga::reference {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

constexpr double kTight = 1e-12;

TEST(ReferenceTest, HalvesIncludeSubnormalsAndInfinity) {
  EXPECT_EQ(HalfToDouble(0x3c00), 1.0);
  EXPECT_EQ(HalfToDouble(0xc000), -2.0);
  EXPECT_EQ(HalfToDouble(0x0001), std::ldexp(1.0, -24));
  EXPECT_EQ(HalfToDouble(0x7bff), 65504.0);
  EXPECT_TRUE(std::isinf(HalfToDouble(0xfc00)));
  EXPECT_TRUE(std::isnan(HalfToDouble(0x7e00)));
}

TEST(ReferenceTest, Q4_1HoldsTheFirstHalfOfABlockInTheLowNibbles) {
  std::array<uint8_t, 20> block = {0x00, 0x38, 0x00, 0xbc};  // d = 0.5, m = -1.
  for (size_t i = 0; i < 16; ++i)
    block[4 + i] = static_cast<uint8_t>(i | ((15 - i) << 4));
  const Matrix matrix =
      Dequantise(Format::kQ4_1, reinterpret_cast<const std::byte*>(block.data()), 1, 32);
  for (int64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(matrix.At(0, i), 0.5 * static_cast<double>(i) - 1.0);
    EXPECT_EQ(matrix.At(0, i + 16), 0.5 * static_cast<double>(15 - i) - 1.0);
  }
}

TEST(ReferenceTest, Q8_0RowsFollowEachOther) {
  std::array<uint8_t, 68> blocks = {};
  blocks[1] = 0x3c;   // Row 0: d = 1.
  blocks[2] = 0x80;   // -128
  blocks[35] = 0x40;  // Row 1: d = 2.
  blocks[67] = 0x7f;  // 127
  const Matrix matrix =
      Dequantise(Format::kQ8_0, reinterpret_cast<const std::byte*>(blocks.data()), 2, 32);
  EXPECT_EQ(matrix.At(0, 0), -128.0);
  EXPECT_EQ(matrix.At(0, 31), 0.0);
  EXPECT_EQ(matrix.At(1, 31), 254.0);
}

TEST(ReferenceTest, OpsGiveTheNumbersOfTheirDefinitions) {
  const Matrix w{.rows = 2, .cols = 3, .values = {1, 2, 3, 4, 5, 6}};
  EXPECT_THAT(MatVec(w, {1, 0, -1}), ElementsAre(-2.0, -2.0));
  const Vector normed = RmsNorm({3, 4}, {1, 2}, 0.0);  // mean square 12.5
  EXPECT_NEAR(normed[0], 3.0 / std::sqrt(12.5), kTight);
  EXPECT_NEAR(normed[1], 8.0 / std::sqrt(12.5), kTight);
  EXPECT_THAT(Softmax({1000.0, 1000.0 + std::log(3.0)}),
              Pointwise(DoubleNear(kTight), {0.25, 0.75}));
  EXPECT_NEAR(Silu(1.0), 0.7310585786300049, kTight);
}

TEST(ReferenceTest, RopeTurnsAdjacentPairsAndKeepsTheRest) {
  Vector head = {1.0, 0.0, 1.0, 0.0, 5.0, 6.0};
  RotateAdjacentPairs(head.data(), {1.0, 0.5}, 3);
  const Vector turned = {std::cos(3.0), std::sin(3.0), std::cos(1.5),
                         std::sin(1.5), 5.0,           6.0};
  EXPECT_THAT(head, Pointwise(DoubleNear(kTight), turned));
}

TEST(ReferenceTest, AttentionWeighsValuesByTheSoftmaxOfScaledScores) {
  // q . k / sqrt(4) = 0 and ln 3: weights 1/4 and 3/4.
  const Vector output =
      Attend({2.0, 0.0, 0.0, 0.0}, {{0.0, 9.0, 0.0, 0.0}, {std::log(3.0), 0.0, 0.0, 0.0}},
             {{4.0, 0.0}, {0.0, 8.0}});
  EXPECT_THAT(output, Pointwise(DoubleNear(kTight), {1.0, 6.0}));
}

// One layer whose matrices are all zero: the residual stream is the embedding.
TEST(ReferenceTest, ZeroLayersLeaveTheEmbedding) {
  const Matrix square{.rows = 2, .cols = 2, .values = {0, 0, 0, 0}};
  LlamaLayer layer{.attention_norm = {1, 1},
                   .q = square,
                   .k = square,
                   .v = square,
                   .attention_out = square,
                   .mlp_norm = {1, 1},
                   .gate = square,
                   .up = square,
                   .down = square};
  const Matrix embedding{.rows = 2, .cols = 2, .values = {1, 1, -3, 3}};
  const Llama model{.heads = 1,
                    .kv_heads = 1,
                    .head_dim = 2,
                    .norm_eps = 0.0,
                    .rope_base = 100.0,
                    .rope_dims = 2,
                    .embedding = embedding,
                    .head = embedding,
                    .output_norm = {1, 1},
                    .layers = {layer}};
  const std::vector<Vector> logits = LlamaLogits(model, {0, 1});
  EXPECT_THAT(logits[0], Pointwise(DoubleNear(kTight), {2.0, 0.0}));
  EXPECT_THAT(logits[1], Pointwise(DoubleNear(kTight), {0.0, 6.0}));
}

}  // namespace
}  // namespace renga::reference
