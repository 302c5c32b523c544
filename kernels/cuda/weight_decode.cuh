// From packed weights (weight_format.h) to A fragments and single values.
//
// A run is copied to shared memory ("staged": its scales and codes, for kQ4K with the
// heads of its super block before them) and read from there by one warp: WeightRun is one
// lane's part of it, Fragment(step) its four registers of mma.m16n8k16.
//
// The value of a weight is one f16, rounded once from
//   kF16  itself      kQ8  d q      kQ4  d q + m
// and for kQ4K from the f32 fma((d s), q, -(dmin m)), whose products are exact.
// WeightElement is the same before it is rounded to f16.
//
// A code q becomes an f16 by bits: 0x6400 | q is 1024 + q, and 0x6400 | 16 q is
// 1024 + 16 q; what is taken off again is exact.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"
#include "kernels/cuda/weight_format.h"
#include "kernels/cuda/words.h"

namespace renga::cuda {

constexpr int kPieceBytes = 16;

template <DeviceWeightType kType>
constexpr int kStagedBytes = StagedBytes(kType);
template <DeviceWeightType kType>
constexpr int kStagedHeads = kStagedBytes<kType> - RunBytes(kType);
template <DeviceWeightType kType>
constexpr int kStagedPieces = kStagedBytes<kType> / kPieceBytes;

// Where piece `piece` of staged run `run` is in its tile.
template <DeviceWeightType kType>
RENGA_DEVICE int64_t StagedOffset(int run, int piece) {
  if constexpr (kStagedHeads < kType >> 0) {
    if (piece * kPieceBytes < kStagedHeads<kType>) {
      return Q4KHeadOffset(run) + piece * kPieceBytes;
    }
  }
  return RunOffset(kType, run) + piece * kPieceBytes - kStagedHeads<kType>;
}

// Both halves the low, or the high half of a word.
RENGA_DEVICE uint32_t LowTwice(uint32_t word) { return BytePerm(word, word, 0x1010); }
RENGA_DEVICE uint32_t HighTwice(uint32_t word) { return BytePerm(word, word, 0x3232); }

// The codes of register r = hi + 2 j of a step, two f16: bits 4 r and 16 + 4 r of `word`.
RENGA_DEVICE uint32_t NibblePair(uint32_t word, int r) {
  const uint32_t bits = r < 2 ? word : word >> 8;
  if (r % 2 == 0) return SubHalf2(AndOr(bits, 0x000F000Fu, 0x64006400u), 0x64006400u);
  // (1024 + 16 q) / 16 - 64.
  return FmaHalf2(AndOr(bits, 0x00F000F0u, 0x64006400u), 0x2C002C00u, 0xD400D400u);
}

template <DeviceWeightType kType>
class WeightRun;

template <>
class WeightRun<DeviceWeightType::kF16> {
 public:
  template <class Ctx>
  RENGA_DEVICE void Load(Ctx& ctx, const uint8_t* staged) {
    RENGA_UNROLL
    for (int step = 0; step < kRunSteps; ++step) {
      codes_[step] = ctx.SharedLoad16(staged + 512 * step + 16 * ctx.lane());
    }
  }
  RENGA_DEVICE void Fragment(int step, uint32_t (&a)[4]) const {
    RENGA_UNROLL
    for (int r = 0; r < 4; ++r) a[r] = codes_[step].word[r];
  }

 private:
  Vec16 codes_[kRunSteps];
};

template <>
class WeightRun<DeviceWeightType::kQ8> {
 public:
  template <class Ctx>
  RENGA_DEVICE void Load(Ctx& ctx, const uint8_t* staged) {
    const uint32_t* scales =
        reinterpret_cast<const uint32_t*>(staged + ctx.lane() / 4 * 8);
    scales_[0] = scales[0];
    scales_[1] = scales[1];
    codes_[0] = ctx.SharedLoad16(staged + 64 + 16 * ctx.lane());
    codes_[1] = ctx.SharedLoad16(staged + 64 + 512 + 16 * ctx.lane());
  }
  RENGA_DEVICE void Fragment(int step, uint32_t (&a)[4]) const {
    RENGA_UNROLL
    for (int r = 0; r < 4; ++r) {
      const uint32_t word = codes_[step / 2].word[step % 2 * 2 + r / 2];
      // 1024 + 128 + q.
      const uint32_t biased = BytePerm(word, 0x64646464u, r % 2 == 0 ? 0x4140u : 0x4342u);
      const uint32_t d = step < 2 ? LowTwice(scales_[r % 2]) : HighTwice(scales_[r % 2]);
      a[r] = MulHalf2(d, SubHalf2(biased, 0x64806480u));
    }
  }

 private:
  uint32_t scales_[2];  // Row g and g + 8: d of block 0, of block 1.
  Vec16 codes_[2];
};

template <>
class WeightRun<DeviceWeightType::kQ4> {
 public:
  template <class Ctx>
  RENGA_DEVICE void Load(Ctx& ctx, const uint8_t* staged) {
    scales_ = ctx.SharedLoad16(staged + ctx.lane() / 4 * 16);
    codes_ = ctx.SharedLoad16(staged + 128 + 16 * ctx.lane());
  }
  RENGA_DEVICE void Fragment(int step, uint32_t (&a)[4]) const {
    RENGA_UNROLL
    for (int r = 0; r < 4; ++r) {
      const uint32_t scale = scales_.word[r % 2 * 2 + step / 2];
      a[r] =
          FmaHalf2(LowTwice(scale), NibblePair(codes_.word[step], r), HighTwice(scale));
    }
  }

 private:
  Vec16 scales_;  // Row g: (d, m) of block 0, of block 1; row g + 8.
  Vec16 codes_;
};

template <>
class WeightRun<DeviceWeightType::kQ4K> {
 public:
  template <class Ctx>
  RENGA_DEVICE void Load(Ctx& ctx, const uint8_t* staged) {
    const int at = ctx.lane() / 4 * 8;
    const uint32_t* heads = reinterpret_cast<const uint32_t*>(staged + at);
    const uint32_t* scales =
        reinterpret_cast<const uint32_t*>(staged + kQ4KHeadBytes + at);
    RENGA_UNROLL
    for (int hi = 0; hi < 2; ++hi) {
      const float d = HalfToFloat(static_cast<uint16_t>(heads[hi]));
      const float dmin = HalfToFloat(static_cast<uint16_t>(heads[hi] >> 16));
      RENGA_UNROLL
      for (int block = 0; block < 2; ++block) {
        const uint32_t pair = scales[hi] >> (16 * block);
        scale_[hi][block] = d * static_cast<float>(pair & 0xFFu);
        least_[hi][block] = -(dmin * static_cast<float>(pair >> 8 & 0xFFu));
      }
    }
    codes_ = ctx.SharedLoad16(staged + kQ4KHeadBytes + 64 + 16 * ctx.lane());
  }
  RENGA_DEVICE void Fragment(int step, uint32_t (&a)[4]) const {
    RENGA_UNROLL
    for (int r = 0; r < 4; ++r) {
      const uint32_t codes = NibblePair(codes_.word[step], r);
      const float scale = scale_[r % 2][step / 2];
      const float least = least_[r % 2][step / 2];
      const float low = HalfToFloat(static_cast<uint16_t>(codes));
      const float high = HalfToFloat(static_cast<uint16_t>(codes >> 16));
      a[r] = PackHalf2(Fma(scale, low, least), Fma(scale, high, least));
    }
  }

 private:
  float scale_[2][2];  // Of row g, g + 8; of block 0, 1.
  float least_[2][2];
  Vec16 codes_;
};

RENGA_DEVICE float HalfAt(const uint8_t* at) {
  return HalfToFloat(*reinterpret_cast<const uint16_t*>(at));
}

// The value of weight (row, col), rounded once to f32.
template <DeviceWeightType kType>
RENGA_DEVICE float WeightElement(const uint8_t* weights, int64_t cols, int row, int col) {
  const int row16 = row % kWeightTileRows;
  const int run = col / kRunCols;
  const int block = col % kRunCols / 32;
  const FragmentPlace at = PlaceOf(row16, col % kRunCols);
  const uint8_t* tile = weights + row / kWeightTileRows * TileBytes(kType, cols);
  const uint8_t* scales = tile + RunOffset(kType, run);
  const uint8_t* code = scales + ScaleBytes(kType) + CodeOffset(kType, at);
  // Of this row and block, in the scales of the run.
  const int scale = row16 % 8 * 4 + at.hi * 2 + block;
  if constexpr (kType == DeviceWeightType::kF16) {
    return HalfAt(code);
  } else if constexpr (kType == DeviceWeightType::kQ8) {
    return HalfAt(scales + 2 * scale) * static_cast<float>(static_cast<int>(*code) - 128);
  } else {
    const float q = static_cast<float>(*code >> (4 * at.hi) & 15);
    if constexpr (kType == DeviceWeightType::kQ4) {
      return Fma(HalfAt(scales + 4 * scale), q, HalfAt(scales + 4 * scale + 2));
    } else {
      const uint8_t* heads = tile + Q4KHeadOffset(run) + row16 % 8 * 8 + at.hi * 4;
      const float d = HalfAt(heads) * static_cast<float>(scales[2 * scale]);
      return Fma(d, q, -(HalfAt(heads + 2) * static_cast<float>(scales[2 * scale + 1])));
    }
  }
}

}  // namespace renga::cuda
