// The packed layout, byte by byte as the drawing in weight_format.h has it, read back at
// the fragment positions of mma.m16n8k16.

#include "kernels/cuda/weight_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/cuda/device_weights.h"

namespace renga::cuda {
namespace {

using test::FileWeights;
using test::HalfBits;
using test::RandomFileWeights;

constexpr WeightType kTypes[] = {WeightType::kF32,  WeightType::kF16,  WeightType::kBf16,
                                 WeightType::kQ8_0, WeightType::kQ4_1, WeightType::kQ4_0,
                                 WeightType::kQ4_K};

double HalfAt(const uint8_t* at) {
  const int bits = at[0] + at[1] * 256;
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24)
                                         : std::ldexp(1024 + mantissa, exponent - 25);
  return bits >= 0x8000 ? -magnitude : magnitude;
}

// One value of a packed weight, by its place in an mma: A[row][8 j + 2 t + e] of `step`.
struct Place {
  int64_t tile, run;
  int step, row, t, j, e;
};

double Read(DeviceWeightType type, const std::vector<uint8_t>& packed, int64_t runs,
            const Place& p) {
  const int g = p.row % 8;
  const int hi = p.row / 8;
  const int lane = 4 * g + p.t;
  const int block = p.step / 2;
  const auto at = [&](int64_t offset) { return packed.data() + offset; };
  switch (type) {
    case DeviceWeightType::kF16: {
      const int64_t run = (p.tile * runs + p.run) * 2048;
      return HalfAt(at(run + p.step * 512 + lane * 16 + (hi + 2 * p.j) * 4 + p.e * 2));
    }
    case DeviceWeightType::kQ8: {
      const int64_t run = (p.tile * runs + p.run) * 1088;
      const double d = HalfAt(at(run + g * 8 + hi * 4 + block * 2));
      const int64_t code =
          run + 64 + block * 512 + lane * 16 + p.step % 2 * 8 + p.j * 4 + hi * 2 + p.e;
      return d * (*at(code) - 128);
    }
    case DeviceWeightType::kQ4: {
      const int64_t run = (p.tile * runs + p.run) * 640;
      const int64_t scales = run + g * 16 + hi * 8 + block * 4;
      const int byte = *at(run + 128 + lane * 16 + p.step * 4 + p.j + 2 * p.e);
      return HalfAt(at(scales)) * (hi == 0 ? byte % 16 : byte / 16) +
             HalfAt(at(scales + 2));
    }
    case DeviceWeightType::kQ4K: {
      const int64_t super = (p.tile * runs / 4 + p.run / 4) * 2368;
      const int64_t run = super + 64 + p.run % 4 * 576;
      const int64_t head = super + g * 8 + hi * 4;
      const int64_t scales = run + g * 8 + hi * 4 + block * 2;
      const int byte = *at(run + 64 + lane * 16 + p.step * 4 + p.j + 2 * p.e);
      return HalfAt(at(head)) * *at(scales) * (hi == 0 ? byte % 16 : byte / 16) -
             HalfAt(at(head + 2)) * *at(scales + 1);
    }
  }
  return 0.0;
}

// k in memory of k in the mma: a lane's x of two steps is 8 neighbours.
int64_t KOf(const Place& p) {
  return p.run * 64 + p.step / 2 * 32 + p.t * 8 + p.step % 2 * 4 + p.j * 2 + p.e;
}

double WeightAt(const FileWeights& w, const Place& p) {
  const int64_t row = p.tile * 16 + p.row;
  return IsQuantised(w.type) ? w.Exact(row, KOf(p)) : w.Half(row, KOf(p));
}

void ExpectPacked(const FileWeights& w, const std::vector<uint8_t>& packed) {
  const int64_t tiles = (w.rows + 15) / 16;
  const int64_t runs = (w.cols + 63) / 64;
  for (int64_t i = 0; i < tiles * runs * 1024; ++i) {
    const auto bits = static_cast<int>(i % 1024);
    const Place p{.tile = i / 1024 / runs,
                  .run = i / 1024 % runs,
                  .step = bits >> 8,
                  .row = bits >> 4 & 15,
                  .t = bits >> 2 & 3,
                  .j = bits >> 1 & 1,
                  .e = bits & 1};
    const double value = Read(DeviceTypeOf(w.type), packed, runs, p);
    const bool there = p.tile * 16 + p.row < w.rows && KOf(p) < w.cols;
    ASSERT_TRUE(there || !std::signbit(value)) << "a -0 in the padding";
    ASSERT_EQ(value, there ? WeightAt(w, p) : 0.0)
        << test::WeightName(w.type) << ' ' << w.rows << 'x' << w.cols << " tile "
        << p.tile << " run " << p.run << " step " << p.step << " row " << p.row << " t "
        << p.t << " j " << p.j << " e " << p.e;
  }
}

std::vector<uint8_t> Pack(const FileWeights& w) {
  const int64_t bytes = DeviceWeightBytes(DeviceTypeOf(w.type), w.rows, w.cols);
  std::vector<uint8_t> packed(static_cast<size_t>(bytes), 0xAB);
  EXPECT_TRUE(PackDeviceWeight({.type = w.type,
                                .file = w.file.data(),
                                .rows = w.rows,
                                .cols = w.cols,
                                .first_row = 0,
                                .total_rows = w.rows,
                                .out = packed.data()}));
  return packed;
}

int64_t UnitCols(WeightType type) { return type == WeightType::kQ4_K ? 256 : 32; }

TEST(WeightFormat, EveryWeightIsWhereTheDrawingHasIt) {
  for (const WeightType type : kTypes) {
    for (const int64_t rows : {1, 15, 16, 40}) {
      for (const int64_t units : {1, 3}) {
        const FileWeights w = RandomFileWeights(type, rows, units * UnitCols(type), 3);
        ExpectPacked(w, Pack(w));
      }
    }
  }
  const FileWeights ragged = RandomFileWeights(WeightType::kF16, 17, 72, 4);
  ExpectPacked(ragged, Pack(ragged));
}

TEST(WeightFormat, StackedMatricesAreOneWeight) {
  for (const WeightType type : kTypes) {
    const int64_t cols = 2 * UnitCols(type);
    const FileWeights w = RandomFileWeights(type, 70, cols, 5);
    const std::vector<uint8_t> whole = Pack(w);
    std::vector<uint8_t> pieces(whole.size(), 0xAB);
    const auto row_bytes = static_cast<int64_t>(w.file.size()) / w.rows;
    for (const auto& [first, rows] :
         {std::pair<int64_t, int64_t>{48, 22}, {0, 32}, {32, 16}}) {
      EXPECT_TRUE(PackDeviceWeight({.type = type,
                                    .file = w.file.data() + first * row_bytes,
                                    .rows = rows,
                                    .cols = cols,
                                    .first_row = first,
                                    .total_rows = w.rows,
                                    .out = pieces.data()}));
    }
    EXPECT_EQ(pieces, whole) << test::WeightName(type);
  }
}

TEST(WeightFormat, BytesAreThoseOfTheFileAndLittleMore) {
  EXPECT_EQ(DeviceWeightBytes(DeviceWeightType::kQ4, 4096, 4096), 4096 * 4096 / 8 * 5);
  EXPECT_EQ(DeviceWeightBytes(DeviceWeightType::kQ8, 4096, 4096), 4096 * 4096 / 16 * 17);
  EXPECT_EQ(DeviceWeightBytes(DeviceWeightType::kF16, 4096, 4096), 4096 * 4096 * 2);
  EXPECT_EQ(DeviceWeightBytes(DeviceWeightType::kQ4K, 4096, 4096), 4096 / 16 * 16 * 2368);
  EXPECT_EQ(DeviceWeightBytes(DeviceWeightType::kQ4, 1, 32), 768)
      << "a run of 640, rounded up";
}

TEST(WeightFormat, PartsOfKFollowEachOtherAndDifferByOneRun) {
  for (int32_t runs = 1; runs <= 300; ++runs) {
    int32_t next = 0;
    int32_t least = runs;
    int32_t most = 0;
    for (int32_t part = 0; part < kProductSplits; ++part) {
      const RunRange range = SplitOf(runs, part);
      ASSERT_EQ(range.first, next);
      least = std::min(least, range.last - range.first);
      most = std::max(most, range.last - range.first);
      next = range.last;
    }
    ASSERT_EQ(next, runs);
    ASSERT_LE(most - least, 1);
  }
}

// Packs one row of `cols` values from `file`.
bool Fits(WeightType type, const std::vector<uint8_t>& file) {
  const int64_t cols = type == WeightType::kQ4_K ? 256 : IsQuantised(type) ? 32 : 8;
  std::vector<uint8_t> out(
      static_cast<size_t>(DeviceWeightBytes(DeviceTypeOf(type), 1, cols)));
  return PackDeviceWeight({.type = type,
                           .file = file.data(),
                           .rows = 1,
                           .cols = cols,
                           .first_row = 0,
                           .total_rows = 1,
                           .out = out.data()});
}

TEST(WeightFormat, FloatsBeyondTheHalvesAreRefused) {
  const auto fits = [](float value) {
    std::vector<uint8_t> file(8 * 4);
    std::memcpy(file.data() + 20, &value, 4);
    return Fits(WeightType::kF32, file);
  };
  EXPECT_TRUE(fits(0.0f));
  EXPECT_TRUE(fits(-65504.0f));
  EXPECT_TRUE(fits(65519.0f)) << "still rounds to 65504";
  EXPECT_FALSE(fits(65520.0f));
  EXPECT_FALSE(fits(-std::numeric_limits<float>::infinity()));
  EXPECT_FALSE(fits(std::numeric_limits<float>::quiet_NaN()));
  std::vector<uint8_t> half(8 * 2);
  EXPECT_TRUE(Fits(WeightType::kF16, half));
  half[15] = 0x7C;
  EXPECT_FALSE(Fits(WeightType::kF16, half));
}

TEST(WeightFormat, ScalesWhoseWeightsOverflowAreRefused) {
  const auto block = [](size_t bytes, std::vector<double> halves) {
    std::vector<uint8_t> file(bytes);
    for (size_t i = 0; i < halves.size(); ++i) {
      file[2 * i] = static_cast<uint8_t>(HalfBits(halves[i]) & 255);
      file[2 * i + 1] = static_cast<uint8_t>(HalfBits(halves[i]) >> 8);
    }
    return file;
  };
  EXPECT_TRUE(Fits(WeightType::kQ4_0, block(18, {8184.0})));
  EXPECT_FALSE(Fits(WeightType::kQ4_0, block(18, {8192.0})));
  EXPECT_FALSE(Fits(WeightType::kQ4_0, block(18, {-8192.0})));
  EXPECT_TRUE(Fits(WeightType::kQ8_0, block(34, {511.5})));
  EXPECT_FALSE(Fits(WeightType::kQ8_0, block(34, {512.0})));
  EXPECT_TRUE(Fits(WeightType::kQ4_1, block(20, {8192.0, -65504.0})));
  EXPECT_FALSE(Fits(WeightType::kQ4_1, block(20, {4096.0, 8192.0})));
  std::vector<uint8_t> super = block(144, {16.0, 1024.0});
  std::fill(super.begin() + 4, super.begin() + 16,
            uint8_t{0xFF});  // All scales, mins 63.
  EXPECT_TRUE(Fits(WeightType::kQ4_K, super));
  super = block(144, {70.0, 1050.0});  // 15 * 63 d = 63 dmin, above 65504.
  std::fill(super.begin() + 4, super.begin() + 16, uint8_t{0xFF});
  EXPECT_FALSE(Fits(WeightType::kQ4_K, super)) << "63 dmin";
  super = block(144, {128.0, 1.0});
  std::fill(super.begin() + 4, super.begin() + 16, uint8_t{0xFF});
  EXPECT_FALSE(Fits(WeightType::kQ4_K, super)) << "63 * 15 d";
}

}  // namespace
}  // namespace renga::cuda
