// Where elements lie in the registers of ldmatrix and mma, against a table that is not
// the emulator's: the layouts of NVIDIA's CuTe, (thread, value) to an element's index.
// mma: NVIDIA/cutlass include/cute/atom/mma_traits_sm80.hpp,
// SM80_16x8x16_F32F16F16F32_TN; ldmatrix: copy_traits_sm75.hpp, SM75_U32x4_LDSM_N and
// SM75_U16x8_LDSM_T.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/simt/probe.h"

namespace renga::test {
namespace {

// Shape ((4, 8), (2, 2, 2)): the lane and the value are split into digits, each with a
// stride.
struct Layout {
  int lane_strides[2];
  int value_strides[3];

  int Index(int lane, int value) const {
    return lane % 4 * lane_strides[0] + lane / 4 * lane_strides[1] +
           value % 2 * value_strides[0] + value / 2 % 2 * value_strides[1] +
           value / 4 * value_strides[2];
  }
};

constexpr Layout kA{{32, 1}, {16, 8, 128}};  // Of m + 16 k.
constexpr Layout kB{{16, 1}, {8, 64, 0}};    // Of n + 8 k.
constexpr Layout kC{{32, 1}, {16, 8, 0}};    // Of m + 16 n.

// Whole numbers that both formats hold exactly.
float A(int m, int k) { return static_cast<float>((7 * m + 3 * k) % 23 - 11); }
float B(int n, int k) { return static_cast<float>((5 * n + 11 * k) % 19 - 9); }

// f16 or bf16 bits of a whole number up to 128 in magnitude.
uint32_t Element(float value, bool bfloat) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (bfloat) return bits >> 16;
  if (value == 0.0f) return 0;
  const uint32_t exponent = (bits >> 23 & 0xFFu) - 127 + 15;
  return bits >> 31 << 15 | exponent << 10 | (bits & 0x7FFFFFu) >> 13;
}

void CheckMma(bool bfloat) {
  Probe probe{.kernel = bfloat ? "kMmaBf16" : "kMmaF16",
              .in = std::vector<uint32_t>(32 * 4),
              .more = std::vector<uint32_t>(32 * 2),
              .out = std::vector<uint32_t>(32 * 4),
              .n = 3};
  for (int lane = 0; lane < 32; ++lane) {
    for (int value = 0; value < 8; ++value) {
      const int at = kA.Index(lane, value);
      probe.in[static_cast<size_t>(lane * 4 + value / 2)] |=
          Element(A(at % 16, at / 16), bfloat) << (16 * (value % 2));
    }
    for (int value = 0; value < 4; ++value) {
      const int at = kB.Index(lane, value);
      probe.more[static_cast<size_t>(lane * 2 + value / 2)] |=
          Element(B(at % 8, at / 8), bfloat) << (16 * (value % 2));
    }
  }
  const SimtRun run = probe.Run();
  ASSERT_TRUE(run.ok()) << run.ToString();
  EXPECT_EQ(run.counters.products, 1);
  for (int lane = 0; lane < 32; ++lane) {
    for (int value = 0; value < 4; ++value) {
      const int at = kC.Index(lane, value);
      float wanted = 3.0f;
      for (int k = 0; k < 16; ++k) wanted += A(at % 16, k) * B(at / 16, k);
      float got;
      std::memcpy(&got, &probe.out[static_cast<size_t>(lane * 4 + value)], sizeof got);
      EXPECT_EQ(got, wanted) << "lane " << lane << " value " << value;
    }
  }
}

TEST(Fragments, MmaF16HasCuTesLayout) { CheckMma(false); }
TEST(Fragments, MmaBf16HasCuTesLayout) { CheckMma(true); }

TEST(Fragments, LoadMatrixHasCuTesLayout) {
  // Element (matrix i, row r, column c) is 64 i + 8 r + c.
  Probe probe{.kernel = "kLoadMatrices", .out = std::vector<uint32_t>(256)};
  for (uint32_t i = 0; i < 128; ++i) probe.in.push_back(2 * i | (2 * i + 1) << 16);
  const SimtRun run = probe.Run();
  ASSERT_TRUE(run.ok()) << run.ToString();
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      for (int value = 0; value < 2; ++value) {
        // Bits of the matrix in row order: 32 per lane, or ((4, 8), 2):((256, 16), 128).
        const int plain = (32 * lane + 16 * value) / 16;
        const int transposed = (lane % 4 * 256 + lane / 4 * 16 + value * 128) / 16;
        const size_t at = static_cast<size_t>(4 * lane + i);
        EXPECT_EQ(probe.out[at] >> (16 * value) & 0xFFFF,
                  static_cast<uint32_t>(64 * i + plain));
        EXPECT_EQ(probe.out[128 + at] >> (16 * value) & 0xFFFF,
                  static_cast<uint32_t>(64 * i + transposed));
      }
    }
  }
}

}  // namespace
}  // namespace renga::test
