// RMS norm, quantisation, SwiGLU, rotation and KV append: each against its definition in
// double precision, and all instruction sets against the portable bits.

#include <gtest/gtest.h>

#include "tests/kernels/kernel_cases.h"

namespace renga {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(RmsNorm, EqualsDoublePrecisionAndThePortableBits) {
  for (const int64_t n : {1, 2, 15, 16, 17, 33, 64, 100, 576}) {
    const std::vector<float> x = RandomFloats(n, 1, 3.0f);
    const std::vector<float> weight = RandomFloats(n, 2);
    double sum = 0.0;
    for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
    const double r = 1.0 / std::sqrt(sum / static_cast<double>(n) + 1e-5);
    GuardedFloats expected(n);
    FindCpuOps("portable")->rms_norm(x.data(), weight.data(), n, 1e-5f, expected.data());
    for (const CpuOps* ops : MachineOps()) {
      GuardedFloats out(n);
      ops->rms_norm(x.data(), weight.data(), n, 1e-5f, out.data());
      EXPECT_TRUE(out.SameBits(expected)) << ops->name << " " << n;
      EXPECT_TRUE(out.GuardsIntact());
      for (int64_t i = 0; i < n; ++i) {
        const size_t at = static_cast<size_t>(i);
        const double want =
            static_cast<double>(x[at]) * r * static_cast<double>(weight[at]);
        ASSERT_NEAR(out[i], want, std::abs(want) * 1e-6) << ops->name << " " << n;
      }
    }
  }
}

TEST(QuantiseRow, IsWithinHalfAStepAndSumsItsCodes) {
  constexpr int64_t kCols = 96;
  for (const CpuOps* ops : MachineOps()) {
    QuantStore store(11, kCols);
    const std::vector<float> all = RandomFloats(11 * kCols, 1, 2.0f);
    QuantiseInto(*ops, all, kCols, 0.0f, store);
    for (int64_t row = 0; row < 11; ++row) {
      const float* x = all.data() + row * kCols;
      for (int64_t b = 0; b < kCols; b += 32) {
        const int64_t at = ScaleAt(kCols, row, b);
        const double scale = static_cast<double>(store.rows().scales[at]);
        float largest = 0.0f;
        int sum = 0;
        for (int64_t k = b; k < b + 32; ++k) {
          const float value = x[k];
          const int code = CodeAt(store.rows(), kCols, row, k);
          largest = std::max(largest, std::abs(value));
          sum += code;
          // Half a step, and one more where the low plane would be -128.
          ASSERT_NEAR(code * scale, static_cast<double>(value), scale * 1.501);
          EXPECT_LE(std::abs(code), 32512);
        }
        EXPECT_EQ(static_cast<float>(scale), largest / 32512.0f);
        EXPECT_EQ(store.rows().code_sums[at], sum);
        EXPECT_EQ(store.rows().scaled_sums[at],
                  static_cast<float>(scale) * static_cast<float>(sum));
      }
    }
  }
}

// Definition: coarse where max^2 < coarse * mean of max^2 over the row's blocks.
TEST(QuantiseRow, OnlyBlocksThatStandOutKeepTheirLowPlane) {
  constexpr int64_t kCols = 320, kRows = 11, kBlocks = kCols / 32;
  std::vector<float> x = RandomFloats(kRows * kCols, 9);
  for (size_t i = 0; i < x.size(); ++i) {
    if (i / 32 % 7 == 0) x[i] *= 6.0f;
  }
  QuantStore expected(kRows, kCols);
  for (const CpuOps* ops : MachineOps()) {
    QuantStore store(kRows, kCols);
    int64_t coarse_blocks = 0;
    std::vector<unsigned> fine(2 * kBlocks, 0);
    QuantiseInto(*ops, x, kCols, 2.56f, store);
    for (int64_t row = 0; row < kRows; ++row) {
      const float* values = x.data() + row * kCols;
      double largest[kBlocks] = {};
      double mean = 0.0;
      for (int64_t k = 0; k < kCols; ++k) {
        const double size = std::abs(static_cast<double>(values[k]));
        largest[k / 32] = std::max(largest[k / 32], size);
      }
      for (const double block : largest) mean += block * block / kBlocks;
      for (int64_t k = 0; k < kCols; ++k) {
        const double max = largest[k / 32];
        const int code = CodeAt(store.rows(), kCols, row, k);
        const bool coarse = max * max < 2.56 * mean;
        if (coarse) {
          EXPECT_EQ(code % 256, 0);
          ASSERT_NEAR(code / 256 * max / 127, static_cast<double>(values[k]),
                      max / 127 * 0.501);
        }
        if (k % 32 != 0) continue;
        coarse_blocks += coarse;
        if (!coarse)
          fine[static_cast<size_t>(row / 8 * kBlocks + k / 32)] |= 1u << row % 8;
      }
    }
    EXPECT_GT(coarse_blocks, kRows * kBlocks / 2);
    EXPECT_LT(coarse_blocks, kRows * kBlocks);
    for (size_t i = 0; i < fine.size(); ++i) {
      EXPECT_EQ(store.rows().fine[i], fine[i]) << ops->name << " " << i;
    }
    if (ops == FindCpuOps("portable")) expected = store;
    EXPECT_TRUE(store.SameBits(expected)) << ops->name;
  }
}

TEST(QuantiseRow, RoundsTiesToEven) {
  std::vector<float> x(32, 0.0f);
  x[0] = 32512.0f;
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = -2.5f;
  x[4] = -3.5f;
  x[5] = 128.0f;   // 256 - 128: the low plane may not be -128, so 129.
  x[6] = -127.0f;  // Fits the low plane.
  x[7] = -128.0f;
  for (const CpuOps* ops : MachineOps()) {
    QuantStore store(1, 32);
    QuantiseInto(*ops, x, 32, 0.0f, store);
    const int expected[] = {32512, 0, 2, -2, -4, 129, -127, -127, 0};
    for (int k = 0; k < 9; ++k) {
      EXPECT_EQ(CodeAt(store.rows(), 32, 0, k), expected[k]) << ops->name << " " << k;
    }
  }
}

TEST(QuantiseRow, ZerosTinyAndNonFiniteValuesAreDefinedAndTheSameEverywhere) {
  constexpr int kRows = 7;
  std::vector<float> x(kRows * 32, 0.0f);
  const auto row = [&](int i) { return std::span<float>(x).subspan(size_t{32} * i, 32); };
  std::fill(row(1).begin(), row(1).end(), -0.0f);
  std::fill(row(2).begin(), row(2).end(), 1e-38f);
  std::fill(row(3).begin(), row(3).end(), 2e-30f);
  for (int i = 4; i < kRows; ++i) {
    const std::vector<float> values =
        RandomFloats(32, static_cast<uint32_t>(i), i == 4 ? 1e37f : 1.0f);
    std::copy(values.begin(), values.end(), row(i).begin());
  }
  row(5)[31] = kNan;
  row(6)[0] = -kInf;
  for (const float coarse : {0.0f, 2.56f, 1e9f}) {
    QuantStore expected(kRows, 32);
    QuantiseInto(*FindCpuOps("portable"), x, 32, coarse, expected);
    EXPECT_EQ(expected.rows().scales[0], 0.0f);
    EXPECT_EQ(expected.rows().scales[2], 0.0f);
    EXPECT_GT(expected.rows().scales[3], 0.0f);
    EXPECT_TRUE(std::isnan(expected.rows().scales[5]));
    EXPECT_TRUE(std::isnan(expected.rows().scales[6]));
    EXPECT_EQ(expected.rows().scales[7], 0.0f);
    for (const CpuOps* ops : MachineOps()) {
      QuantStore store(kRows, 32);
      QuantiseInto(*ops, x, 32, coarse, store);
      EXPECT_TRUE(store.SameBits(expected)) << ops->name << " " << coarse;
    }
  }
}

TEST(Swiglu, EqualsDoublePrecisionAndThePortableBits) {
  for (const int64_t n : {1, 15, 16, 31, 32, 33, 100}) {
    std::vector<float> gate = RandomFloats(n, 3, 8.0f);
    const std::vector<float> up = RandomFloats(n, 4);
    gate[0] = n == 16 ? 0.0f : -200.0f;
    GuardedFloats expected(n);
    FindCpuOps("portable")->swiglu(gate.data(), up.data(), n, expected.data());
    for (const CpuOps* ops : MachineOps()) {
      GuardedFloats out(n);
      ops->swiglu(gate.data(), up.data(), n, out.data());
      EXPECT_TRUE(out.SameBits(expected)) << ops->name << " " << n;
      for (int64_t i = 0; i < n; ++i) {
        const double g = static_cast<double>(gate[static_cast<size_t>(i)]);
        const double want =
            g / (1.0 + std::exp(-g)) * static_cast<double>(up[static_cast<size_t>(i)]);
        ASSERT_NEAR(out[i], want, std::abs(want) * 3e-6 + 1e-30) << ops->name << " " << g;
      }
    }
  }
}

TEST(Swiglu, ExtremeGatesAreTheSameEverywhere) {
  const std::vector<float> gate = {kInf,   -kInf, 3e38f,  -3e38f,  88.0f, -88.0f,
                                   1e-40f, -0.0f, 127.0f, -127.0f, 0.5f,  -0.5f,
                                   1.0f,   -1.0f, 200.0f, -200.0f};
  const std::vector<float> up(16, 1.0f);
  GuardedFloats expected(16);
  FindCpuOps("portable")->swiglu(gate.data(), up.data(), 16, expected.data());
  EXPECT_EQ(expected[2], 3e38f);
  EXPECT_EQ(expected[14], 200.0f);
  for (const CpuOps* ops : MachineOps()) {
    GuardedFloats out(16);
    ops->swiglu(gate.data(), up.data(), 16, out.data());
    for (int64_t i = 0; i < 16; ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(out[i]));
      } else {
        EXPECT_EQ(FloatBits(out[i]), FloatBits(expected[i])) << ops->name << " " << i;
      }
    }
  }
}

struct RopeCase {
  int32_t heads, head_dim, rope_dims;
  bool halves;
};

TEST(Rope, RotatesPairsAndScalesEveryChannel) {
  for (const RopeCase& c :
       {RopeCase{1, 2, 2, false}, RopeCase{3, 64, 64, false}, RopeCase{3, 64, 64, true},
        RopeCase{2, 10, 6, true}, RopeCase{2, 10, 6, false}, RopeCase{2, 80, 20, true},
        RopeCase{1, 6, 0, false}}) {
    const int64_t n = int64_t{c.heads} * c.head_dim;
    const std::vector<float> x = RandomFloats(n, 5);
    std::vector<float> cosines, sines;
    for (int i = 0; i < c.rope_dims / 2; ++i) {
      cosines.push_back(std::cos(static_cast<float>(i) + 0.3f));
      sines.push_back(std::sin(static_cast<float>(i) + 0.3f));
    }
    const auto rotate = [&](const CpuOps& ops) {
      GuardedFloats out(n);
      std::copy(x.begin(), x.end(), out.data());
      ops.rope({.x = out.data(),
                .heads = c.heads,
                .head_dim = c.head_dim,
                .rope_dims = c.rope_dims,
                .halves = c.halves,
                .cos = cosines.data(),
                .sin = sines.data(),
                .scale = 0.7f});
      EXPECT_TRUE(out.GuardsIntact());
      return out;
    };
    const GuardedFloats expected = rotate(*FindCpuOps("portable"));
    for (int64_t head = 0; head < c.heads; ++head) {
      for (int i = 0; i < c.head_dim; ++i) {
        const bool rotated = i < c.rope_dims;
        const int half = c.rope_dims / 2;
        const int pair = c.halves ? i % std::max(half, 1) : i / 2;
        const bool second = c.halves ? i >= half : i % 2 == 1;
        const int other =
            c.halves ? (second ? i - half : i + half) : (second ? i - 1 : i + 1);
        const auto value = [&](int j) {
          return static_cast<double>(x[static_cast<size_t>(head * c.head_dim + j)]);
        };
        double want = value(i);
        if (rotated) {
          const double cosine = static_cast<double>(cosines[static_cast<size_t>(pair)]);
          const double sine = static_cast<double>(sines[static_cast<size_t>(pair)]);
          want = second ? value(i) * cosine + value(other) * sine
                        : value(i) * cosine - value(other) * sine;
        }
        ASSERT_NEAR(expected[head * c.head_dim + i], want * 0.7, 1e-6);
      }
    }
    for (const CpuOps* ops : MachineOps()) {
      EXPECT_TRUE(rotate(*ops).SameBits(expected)) << ops->name << " " << c.head_dim;
    }
  }
}

TEST(KvAppend, WritesItsSlotOfThePageLayoutAndNothingElse) {
  for (const int32_t hd : {2, 10, 16, 18, 64, 128, 256}) {
    std::vector<float> k = RandomFloats(hd, 6);
    const std::vector<float> v = RandomFloats(hd, 7);
    k[0] = 70000.0f;  // Overflows f16.
    k[1] = 1e-7f;     // Subnormal in f16.
    for (const int32_t slot : {0, 15, 16, 63}) {
      for (const CpuOps* ops : MachineOps()) {
        std::vector<uint16_t> page(static_cast<size_t>(128 * hd), 0xABCD);
        std::vector<float> wide(static_cast<size_t>(128 * hd), -77.0f);
        KvAppendArgs args{.k = k.data(),
                          .v = v.data(),
                          .page = reinterpret_cast<uint8_t*>(page.data()),
                          .head_dim = hd,
                          .slot = slot};
        ops->kv_append_f16(args);
        args.page = reinterpret_cast<uint8_t*>(wide.data());
        ops->kv_append_f32(args);
        int64_t written = 0;
        for (int64_t i = 0; i < hd; ++i) {
          const size_t at_k = static_cast<size_t>((slot / 16 * hd + i) * 16 + slot % 16);
          const size_t at_v = static_cast<size_t>((64 + slot) * hd + i);
          ASSERT_EQ(page[at_k], F32ToF16(k[static_cast<size_t>(i)])) << ops->name;
          ASSERT_EQ(page[at_v], F32ToF16(v[static_cast<size_t>(i)])) << ops->name;
          ASSERT_EQ(wide[at_k], k[static_cast<size_t>(i)]);
          ASSERT_EQ(wide[at_v], v[static_cast<size_t>(i)]);
        }
        for (const uint16_t half : page) written += half != 0xABCD;
        EXPECT_EQ(written, 2 * hd) << ops->name;
        written = 0;
        for (const float value : wide) written += value != -77.0f;
        EXPECT_EQ(written, 2 * hd) << ops->name;
      }
    }
  }
}

}  // namespace
}  // namespace renga
