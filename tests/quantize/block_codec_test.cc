// Rows in every type, against the drawings of the formats.

#include "quantize/block_codec.h"

#include <gtest/gtest.h>

#include <limits>

#include "formats/ggml_type.h"
#include "tests/quantize/weights_support.h"

namespace renga {
namespace {

constexpr uint32_t kBlockTypes[] = {kGgmlQ8_0, kGgmlQ4_0, kGgmlQ4_1, kGgmlQ4K};

std::vector<std::byte> Written(uint32_t type, const std::vector<float>& values) {
  std::vector<std::byte> row(
      static_cast<size_t>(RowBytes(type, static_cast<int64_t>(values.size()))) + 1,
      std::byte{0x5a});
  EXPECT_TRUE(WriteRow(type, values, row.data()));
  EXPECT_EQ(row.back(), std::byte{0x5a}) << "wrote past the end";
  row.pop_back();
  return row;
}

std::vector<float> Read(uint32_t type, const std::vector<std::byte>& row, size_t cols) {
  std::vector<float> values(cols, std::numeric_limits<float>::quiet_NaN());
  ReadRow(type, row.data(), values);
  return values;
}

TEST(BlockCodec, BlocksReadAsTheirFormatIsDrawn) {
  for (const uint32_t type : kBlockTypes) {
    const auto cols = static_cast<size_t>(2 * BlockValuesOf(type));
    const std::vector<std::byte> row = Written(type, test::WeightLike(cols, 1));
    const std::vector<float> values = Read(type, row, cols);
    const size_t block_bytes = row.size() / 2;
    for (size_t i = 0; i < cols; ++i) {
      const size_t block = i / (cols / 2);
      const std::vector<double> expected =
          test::BlockValues(type, row.data() + block * block_bytes);
      const double value = expected[i % (cols / 2)];
      ASSERT_NEAR(values[i], value, std::fabs(value) * 1e-6 + 1e-9)
          << QuantTypeName(type) << " " << i;
    }
  }
}

TEST(BlockCodec, RandomBytesOfAQ4KBlockReadAsDrawn) {
  std::mt19937 random(7);
  std::vector<std::byte> row(144);
  for (std::byte& byte : row) byte = static_cast<std::byte>(random() % 256);
  row[1] = std::byte{0x1c};  // Finite halves.
  row[3] = std::byte{0x9d};
  const std::vector<float> values = Read(kGgmlQ4K, row, 256);
  const std::vector<double> expected = test::BlockValues(kGgmlQ4K, row.data());
  for (size_t i = 0; i < 256; ++i) {
    ASSERT_NEAR(values[i], expected[i], std::fabs(expected[i]) * 1e-5 + 1e-6) << i;
  }
}

TEST(BlockCodec, FloatsOfEveryKindAreExact) {
  const std::vector<float> values = {0.0f, -0.0f, 1.5f, -65504.0f, 0x1p-24f, 3.25f};
  EXPECT_EQ(Read(kGgmlF32, Written(kGgmlF32, values), 6), values);
  EXPECT_EQ(Read(kGgmlF16, Written(kGgmlF16, values), 6), values);
  const uint16_t bf16[] = {0x3fc0, 0xc77f, 0x0001};
  std::vector<std::byte> row(6);
  std::memcpy(row.data(), bf16, 6);
  EXPECT_EQ(Read(kGgmlBf16, row, 3), (std::vector<float>{1.5f, -65280.0f, 0x1p-133f}));
}

TEST(BlockCodec, ValuesThatNoScaleReachesAreRefused) {
  std::vector<float> values(256, 0.5f);
  std::vector<std::byte> row(2048);
  values[200] = -32768.0f;
  for (const uint32_t type : kBlockTypes) {
    EXPECT_TRUE(WriteRow(type, values, row.data()));
  }
  values[200] = -32769.0f;
  for (const uint32_t type : kBlockTypes) {
    EXPECT_FALSE(WriteRow(type, values, row.data())) << QuantTypeName(type);
  }
  EXPECT_TRUE(WriteRow(kGgmlF16, values, row.data()));
  values[200] = 65505.0f;
  EXPECT_FALSE(WriteRow(kGgmlF16, values, row.data()));
  EXPECT_TRUE(WriteRow(kGgmlF32, values, row.data()));
}

TEST(BlockCodec, TypesThatAreUnknownAreRefusedWithTheList) {
  EXPECT_EQ(*ParseQuantType("q4_k", "--type"), kGgmlQ4K);
  const Status status = ParseQuantType("Q4_K", "--type").status();
  EXPECT_EQ(status.field(), "--type");
  EXPECT_NE(status.message().find("q8_0"), std::string::npos);
  EXPECT_FALSE(CanReadType(14));  // Q6_K
  EXPECT_FALSE(CanWriteType(kGgmlBf16));
  EXPECT_FALSE(CanWriteType(77));
}

}  // namespace
}  // namespace renga
