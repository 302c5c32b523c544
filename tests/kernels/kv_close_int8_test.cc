// Closing a chunk: codes within half a step, special values, and the same bytes on every
// instruction set.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/int8_pages.h"

namespace renga {
namespace {

constexpr uint16_t kHalfNan = 0x7E00;
constexpr uint16_t kHalfInfinity = 0x7C00;
constexpr double kTiny = 0x1p-25;  // Half of the smallest f16.

// Channels of many sizes: ordinary, constant, zero, -0 beside 0, the smallest and the
// largest f16.
HalfChunk MixedChunk(int64_t hd, uint32_t seed) {
  HalfChunk chunk = RandomChunk(hd, seed);
  std::mt19937 random(seed);
  for (int64_t t = 0; t < 64; ++t) {
    for (int64_t c = 0; c < hd; ++c) {
      uint16_t& k = chunk.k[static_cast<size_t>(t * hd + c)];
      uint16_t& v = chunk.v[static_cast<size_t>(t * hd + c)];
      const uint16_t sign = static_cast<uint16_t>((random() & 1) << 15);
      switch (c % 8) {
        case 1:
          k = F32ToF16(3.25f);
          break;
        case 2:
          k = sign;
          break;
        case 3:  // Subnormal.
          k = static_cast<uint16_t>(sign | (random() & 0x3FF));
          break;
        case 4:
          k = static_cast<uint16_t>(sign | 0x7BFF);
          break;
        case 5:  // Far from 0, so that the steps are fine beside the values.
          k = F32ToF16(100.0f + static_cast<float>(random() % 64) * 0.0625f);
          break;
        default:
          break;
      }
      switch (t % 8) {
        case 1:
          v = sign;
          break;
        case 2:
          v = static_cast<uint16_t>(sign | (random() & 0x3FF));
          break;
        case 3:
          v = static_cast<uint16_t>(sign | 0x7BFF);
          break;
        case 4:  // So small that the scale is 0.
          v = static_cast<uint16_t>(sign | (random() & 31));
          break;
        default:
          break;
      }
    }
  }
  return chunk;
}

HalfChunk AnyBits(int64_t hd, uint32_t seed) {
  HalfChunk chunk = RandomChunk(hd, seed);
  std::mt19937 random(seed);
  for (uint16_t& half : chunk.k) half = static_cast<uint16_t>(random());
  for (uint16_t& half : chunk.v) half = static_cast<uint16_t>(random());
  return chunk;
}

std::vector<HalfChunk> Chunks() {
  std::vector<HalfChunk> chunks;
  for (int64_t hd = 16; hd <= kMaxHeadDim; hd += 16) {
    const uint32_t seed = static_cast<uint32_t>(hd);
    chunks.push_back(RandomChunk(hd, seed));
    chunks.push_back(MixedChunk(hd, seed + 1));
  }
  chunks.push_back(AnyBits(64, 5));
  chunks.push_back(AnyBits(48, 6));
  HalfChunk one_nan = RandomChunk(32, 7);
  one_nan.k[37] = kHalfNan;
  one_nan.v[45] = 0xFC00;
  chunks.push_back(one_nan);
  return chunks;
}

TEST(KvCloseInt8, TheFormatHasTheBytesOfItsDrawing) {
  for (int64_t hd = 16; hd <= kMaxHeadDim; hd += 16) {
    const Int8PageFormat at = Int8PageOf(hd);
    EXPECT_EQ(at.bytes, PageBytes(hd));
    EXPECT_EQ(at.bytes % 64, 0);
  }
}

TEST(KvCloseInt8, EveryInstructionSetWritesTheSameBytesAndAllOfThem) {
  for (const HalfChunk& chunk : Chunks()) {
    const std::vector<uint8_t> expected = Closed(*FindCpuOps("portable"), chunk);
    EXPECT_TRUE(std::all_of(expected.end() - 64, expected.end(),
                            [](uint8_t byte) { return byte == 0xA5; }));
    for (const CpuOps* ops : MachineOps()) {
      EXPECT_EQ(Closed(*ops, chunk), expected) << ops->name << " " << chunk.hd;
      // What stood in the page before does not matter.
      std::vector<uint8_t> other = Closed(*ops, chunk, 0x5A);
      std::fill(other.end() - 64, other.end(), uint8_t{0xA5});
      EXPECT_EQ(other, expected) << ops->name << " " << chunk.hd;
    }
  }
}

TEST(KvCloseInt8, KeysAreWithinHalfAStepOfTheirChannel) {
  for (int64_t hd : {16, 64, 80, 256}) {
    const HalfChunk chunk = MixedChunk(hd, 11);
    const DecodedPage page = Decode(Closed(*BestCpuOps(), chunk).data(), hd);
    for (int64_t c = 0; c < hd; ++c) {
      double smallest = 1e9;
      double largest = -1e9;
      for (int64_t t = 0; t < 64; ++t) {
        const double key = HalfValue(chunk.k[static_cast<size_t>(t * hd + c)]);
        smallest = std::min(smallest, key);
        largest = std::max(largest, key);
      }
      const double step = page.step[static_cast<size_t>(c)];
      EXPECT_EQ(page.min[static_cast<size_t>(c)], smallest);
      // The step as an f16: 11 bits, or the smallest difference of two f16.
      const double exact = (largest - smallest) / 255;
      EXPECT_NEAR(step, exact, std::max(exact * 0x1.002p-11, kTiny));
      for (int64_t t = 0; t < 64; ++t) {
        const double key = HalfValue(chunk.k[static_cast<size_t>(t * hd + c)]);
        ASSERT_NEAR(page.Key(t, c), key, std::max(step * 0.50001, 255 * kTiny));
      }
    }
  }
}

TEST(KvCloseInt8, ValuesAreWithinHalfAStepOfTheirToken) {
  for (int64_t hd : {16, 64, 80, 256}) {
    const HalfChunk chunk = MixedChunk(hd, 12);
    const DecodedPage page = Decode(Closed(*BestCpuOps(), chunk).data(), hd);
    for (int64_t t = 0; t < 64; ++t) {
      double largest = 0.0;
      for (int64_t c = 0; c < hd; ++c) {
        const double value = HalfValue(chunk.v[static_cast<size_t>(t * hd + c)]);
        largest = std::max(largest, std::abs(value));
      }
      const double scale = page.scale[static_cast<size_t>(t)];
      EXPECT_NEAR(scale, largest / 127, std::max(largest / 127 * 0x1.002p-11, kTiny));
      for (int64_t c = 0; c < hd; ++c) {
        const double value = HalfValue(chunk.v[static_cast<size_t>(t * hd + c)]);
        ASSERT_NEAR(page.Value(t, c), value, std::max(scale * 0.50001, 127 * kTiny));
        ASSERT_GE(page.v_code[static_cast<size_t>(t * hd + c)], -127);
      }
    }
  }
}

TEST(KvCloseInt8, ZerosOfEitherSignAreZeroBytes) {
  HalfChunk chunk{.hd = 32,
                  .k = std::vector<uint16_t>(64 * 32, 0x8000),
                  .v = std::vector<uint16_t>(64 * 32, 0x8000)};
  chunk.k[5] = chunk.v[5] = 0;
  for (const CpuOps* ops : MachineOps()) {
    const std::vector<uint8_t> page = Closed(*ops, chunk);
    for (int64_t i = 0; i < PageBytes(32); ++i) {
      ASSERT_EQ(page[static_cast<size_t>(i)], 0) << ops->name << " byte " << i;
    }
  }
}

TEST(KvCloseInt8, AConstantChannelIsExact) {
  HalfChunk chunk = RandomChunk(16, 3);
  for (size_t t = 0; t < 64; ++t) chunk.k[t * 16 + 7] = F32ToF16(-1.2345f);
  for (const CpuOps* ops : MachineOps()) {
    const DecodedPage page = Decode(Closed(*ops, chunk).data(), 16);
    EXPECT_EQ(page.step[7], 0.0);
    for (int64_t t = 0; t < 64; ++t) EXPECT_EQ(page.Key(t, 7), HalfValue(chunk.k[7]));
  }
}

TEST(KvCloseInt8, ANonFiniteElementMarksItsChannelOrTokenAndNoOther) {
  for (const uint16_t bad : {kHalfNan, kHalfInfinity, uint16_t{0xFC00}}) {
    HalfChunk chunk = RandomChunk(32, 4);
    const DecodedPage clean = Decode(Closed(*FindCpuOps("portable"), chunk).data(), 32);
    chunk.k[40 * 32 + 9] = bad;
    chunk.v[17 * 32 + 3] = bad;
    for (const CpuOps* ops : MachineOps()) {
      const std::vector<uint8_t> bytes = Closed(*ops, chunk);
      const Int8PageFormat at = Int8PageOf(32);
      EXPECT_EQ(HalfAt(bytes.data() + at.key_min + 2 * 9), kHalfNan);
      EXPECT_EQ(HalfAt(bytes.data() + at.key_step + 2 * 9), 0);
      EXPECT_EQ(HalfAt(bytes.data() + at.value_scale + 2 * 17), kHalfNan);
      const DecodedPage page = Decode(bytes.data(), 32);
      for (int64_t t = 0; t < 64; ++t) {
        for (int64_t c = 0; c < 32; ++c) {
          const size_t i = static_cast<size_t>(t * 32 + c);
          ASSERT_EQ(page.k_code[i], c == 9 ? 0 : clean.k_code[i]) << ops->name;
          ASSERT_EQ(page.v_code[i], t == 17 ? 0 : clean.v_code[i]) << ops->name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace renga
