// The products of every type and instruction set against double precision, and against
// each other bit for bit.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/kernel_cases.h"

namespace renga {
namespace {

using MatmulOp = void (*)(const MatmulArgs&);

MatmulOp OpFor(const CpuOps& ops, WeightType type) {
  switch (type) {
    case WeightType::kBf16:
    case WeightType::kF32:
      return ops.matmul_f32;
    case WeightType::kF16:
      return ops.matmul_f16;
    case WeightType::kQ8_0:
      return ops.matmul_q8_0;
    case WeightType::kQ4_0:
    case WeightType::kQ4_1:
      return ops.matmul_q4_1;
    case WeightType::kQ4_K:
      return ops.matmul_q4_k;
  }
  return nullptr;
}

constexpr float kCoarse = 2.56f;

// Normal values, some blocks of each row eight times as large: with kCoarse these are
// fine and the others coarse.
std::vector<float> UnevenRows(int64_t rows, int64_t cols, uint32_t seed) {
  std::vector<float> x = RandomFloats(rows * cols, seed);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t column = i % static_cast<size_t>(cols) / 32;
    if ((column + seed) % 5 == 0 || i / 32 % 23 == 0) x[i] *= 8.0f;
  }
  return x;
}

// Rows of activations in both forms.
struct TestInput {
  TestInput(int64_t row_count, int64_t col_count, uint32_t seed)
      : rows(row_count),
        cols(col_count),
        x(UnevenRows(row_count, col_count, seed)),
        codes(row_count, col_count / 32 * 32) {
    if (cols % 32 != 0) return;
    QuantiseInto(*FindCpuOps("portable"), x, cols, kCoarse, codes);
  }

  int64_t rows;
  int64_t cols;
  std::vector<float> x;
  QuantStore codes;
};

GuardedFloats Multiply(const CpuOps& ops, const TestWeights& w, TestInput& in,
                       int64_t stride) {
  GuardedFloats out(in.rows * stride);
  OpFor(ops, w.type)({.panels = w.panels.data(),
                      .panel_count = (w.rows + 31) / 32,
                      .cols = w.cols,
                      .outputs = w.rows,
                      .quant = in.codes.rows(),
                      .x = in.x.data(),
                      .x_stride = w.cols,
                      .rows = in.rows,
                      .out = out.data(),
                      .out_stride = stride});
  EXPECT_TRUE(out.GuardsIntact());
  return out;
}

// What the op is defined to read: x itself, or its codes times their scales.
double InputValue(TestInput& in, WeightType type, int64_t row, int64_t k) {
  if (!IsQuantised(type))
    return static_cast<double>(in.x[static_cast<size_t>(row * in.cols + k)]);
  const QuantRows x = in.codes.rows();
  return static_cast<double>(x.scales[ScaleAt(in.cols, row, k)]) *
         CodeAt(x, in.cols, row, k);
}

struct Shape {
  int64_t rows;     // Of activations.
  int64_t outputs;  // Weight rows.
  int64_t cols;
};

std::vector<Shape> ShapesFor(WeightType type) {
  if (type == WeightType::kQ4_K) {
    return {{1, 1, 256},  {2, 31, 256},  {3, 32, 512},    {7, 33, 256},
            {8, 64, 768}, {9, 49, 1280}, {13, 100, 1536}, {17, 16, 512}};
  }
  if (IsQuantised(type)) {
    return {{1, 1, 32},   {2, 31, 64},  {3, 32, 96},     {7, 33, 32},
            {8, 64, 576}, {9, 49, 160}, {13, 100, 1536}, {17, 16, 64}};
  }
  return {{1, 1, 1}, {2, 31, 3}, {3, 32, 17}, {7, 33, 32}, {8, 64, 100}, {13, 100, 65}};
}

// Else the tests below would see one kind of block alone.
TEST(Matmul, TheInputHasTilesWithAndWithoutFineBlocks) {
  TestInput in(8, 576, 4);
  const uint8_t* fine = in.codes.rows().fine;
  const auto count = std::count_if(fine, fine + 18, [](uint8_t f) { return f != 0; });
  EXPECT_GT(count, 0);
  EXPECT_LT(count, 18);
}

TEST(Matmul, EqualsDoublePrecisionOnEveryInstructionSet) {
  for (const CpuOps* ops : MachineOps()) {
    for (const WeightType type : kAllTypes) {
      for (const Shape& shape : ShapesFor(type)) {
        SCOPED_TRACE(std::string(ops->name) + " " + TypeName(type) + " " +
                     std::to_string(shape.rows) + " x " + std::to_string(shape.outputs));
        const TestWeights w = RandomWeights(type, shape.outputs, shape.cols, 3);
        TestInput in(shape.rows, shape.cols, 4);
        const GuardedFloats out = Multiply(*ops, w, in, shape.outputs + 5);
        for (int64_t row = 0; row < shape.rows; ++row) {
          for (int64_t n = 0; n < shape.outputs; ++n) {
            double expected = 0.0;
            double size = 0.0;
            for (int64_t k = 0; k < shape.cols; ++k) {
              const double term = w.values[static_cast<size_t>(n * shape.cols + k)] *
                                  InputValue(in, type, row, k);
              expected += term;
              size += std::abs(term);
            }
            // A chain of cols / 32 (or cols) roundings of at most 2^-24 each.
            ASSERT_NEAR(out[row * (shape.outputs + 5) + n], expected,
                        size * 4e-7 + 1e-12);
          }
          for (int64_t n = shape.outputs; n < shape.outputs + 5; ++n) {
            ASSERT_TRUE(std::isnan(out[row * (shape.outputs + 5) + n]));
          }
        }
      }
    }
  }
}

TEST(Matmul, EveryInstructionSetGivesTheSameBits) {
  for (const WeightType type : kAllTypes) {
    for (const Shape& shape : ShapesFor(type)) {
      const TestWeights w = RandomWeights(type, shape.outputs, shape.cols, 5);
      TestInput in(shape.rows, shape.cols, 6);
      const GuardedFloats expected =
          Multiply(*FindCpuOps("portable"), w, in, shape.outputs);
      for (const CpuOps* ops : MachineOps()) {
        const GuardedFloats out = Multiply(*ops, w, in, shape.outputs);
        EXPECT_TRUE(out.SameBits(expected)) << ops->name << " " << TypeName(type) << " "
                                            << shape.rows << " x " << shape.outputs;
      }
    }
  }
}

TEST(Matmul, ARowAloneGivesTheBitsOfABatch) {
  constexpr int64_t kRows = 13, kOutputs = 70, kCols = 256;
  for (const CpuOps* ops : MachineOps()) {
    for (const WeightType type : kAllTypes) {
      const TestWeights w = RandomWeights(type, kOutputs, kCols, 8);
      TestInput batch(kRows, kCols, 9);
      const GuardedFloats together = Multiply(*ops, w, batch, kOutputs);
      for (int64_t row = 0; row < kRows; ++row) {
        TestInput alone(1, kCols, 1);
        std::copy_n(batch.x.begin() + row * kCols, kCols, alone.x.begin());
        QuantiseInto(*ops, alone.x, kCols, kCoarse, alone.codes);
        GuardedFloats out = Multiply(*ops, w, alone, kOutputs);
        for (int64_t n = 0; n < kOutputs; ++n) {
          ASSERT_EQ(out[n], together[row * kOutputs + n])
              << ops->name << " " << TypeName(type) << " row " << row;
        }
      }
    }
  }
}

TEST(Matmul, AddAddsToWhatIsThere) {
  constexpr int64_t kRows = 9, kOutputs = 45, kCols = 256;
  for (const CpuOps* ops : MachineOps()) {
    for (const WeightType type : kAllTypes) {
      const TestWeights w = RandomWeights(type, kOutputs, kCols, 10);
      TestInput in(kRows, kCols, 11);
      const GuardedFloats product = Multiply(*ops, w, in, kOutputs);
      const std::vector<float> base = RandomFloats(kRows * kOutputs, 12);
      GuardedFloats out(kRows * kOutputs);
      std::copy(base.begin(), base.end(), out.data());
      OpFor(*ops, type)({.panels = w.panels.data(),
                         .panel_count = 2,
                         .cols = kCols,
                         .outputs = kOutputs,
                         .quant = in.codes.rows(),
                         .x = in.x.data(),
                         .x_stride = kCols,
                         .rows = kRows,
                         .out = out.data(),
                         .out_stride = kOutputs,
                         .add = true});
      EXPECT_TRUE(out.GuardsIntact());
      for (int64_t i = 0; i < kRows * kOutputs; ++i) {
        ASSERT_EQ(out[i], base[static_cast<size_t>(i)] + product[i])
            << ops->name << " " << TypeName(type);
      }
    }
  }
}

// The largest codes everywhere: any saturation in a 16-bit step would show.
TEST(Matmul, ExtremeCodesDoNotSaturate) {
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kQ4_1}) {
    for (const int x_sign : {1, -1, 2, -2}) {  // 2: coarse.
      for (const uint8_t fill :
           {uint8_t{0x00}, uint8_t{0x80}, uint8_t{0x7F}, uint8_t{0xFF}}) {
        TestWeights w = RandomWeights(type, 32, 32, 13);
        const int64_t block = FileRowBytes(type, 32);
        const int64_t header = type == WeightType::kQ8_0 ? 2 : 4;
        for (int64_t row = 0; row < 32; ++row) {
          uint8_t* bytes = w.file.data() + row * block;
          std::memset(bytes, 0, 4);
          bytes[1] = 0x3C;  // d = 1, m = 0.
          std::memset(bytes + header, fill, static_cast<size_t>(block - header));
        }
        PackPanels(type, w.file.data(), 32, 32, w.panels.data());
        TestInput in(4, 32, 14);
        const int sign = x_sign > 0 ? 1 : -1;
        const float coarse = x_sign == sign ? 0.0f : 100.0f;
        for (float& x : in.x) x = static_cast<float>(127 * sign);
        QuantiseInto(*FindCpuOps("portable"), in.x, 32, coarse, in.codes);
        const int q = type == WeightType::kQ8_0 ? static_cast<int8_t>(fill) : fill & 15;
        const int q_high = type == WeightType::kQ8_0 ? q : fill >> 4;
        const float expected = static_cast<float>(127 * sign * 16 * (q + q_high));
        for (const CpuOps* ops : MachineOps()) {
          const GuardedFloats out = Multiply(*ops, w, in, 32);
          for (int64_t i = 0; i < out.size(); ++i) {
            ASSERT_EQ(out[i], expected) << ops->name << " " << TypeName(type);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace renga
