// Codes and scales that stand for blocks of weights with the least error.
//
// The error is the sum of w * (x - value)^2, w = |x| + root mean square of the block:
// large weights matter more. Scales are rounded to halves before the codes are chosen, so
// that what is minimised is what the file will say.
//
// Q8_0: the largest value gives the scale.
// Q4_0, Q4_1: codes for a fan of scales around the obvious one; for each the scale (and
//   least value) that fit these codes best, in closed form; the best pair is taken.
// Q4_K: each block of 32 as Q4_1 with a least value <= 0; these give 6-bit scales and
// mins
//   of two common halves. Then, twice: each block tries the neighbours of its two numbers
//   with the best codes for them, and the two halves are fitted again to all codes.
//
// Thread safety: pure functions.

#pragma once

#include <cstdint>
#include <span>

namespace renga {

inline constexpr int kFitBlock = 32;
inline constexpr int kFitSuperBlocks = 8;  // Blocks of a Q4_K super block.
inline constexpr int kFitSuper = kFitBlock * kFitSuperBlocks;

// value = scale * code, codes in [-127, 127] (Q8_0) or [-8, 7] (Q4_0).
struct SymmetricBlock {
  uint16_t scale = 0;  // A half.
  int8_t codes[kFitBlock] = {};
};

// value = scale * code + least, codes in [0, 15].
struct AffineBlock {
  uint16_t scale = 0;  // Halves.
  uint16_t least = 0;
  uint8_t codes[kFitBlock] = {};
};

// value = (scale * scales[b]) * code - min * mins[b], codes in [0, 15].
struct SuperBlock {
  uint16_t scale = 0;  // Halves.
  uint16_t min = 0;
  uint8_t scales[kFitSuperBlocks] = {};  // 6 bits each.
  uint8_t mins[kFitSuperBlocks] = {};
  uint8_t codes[kFitSuper] = {};
};

// The values are finite.
SymmetricBlock FitQ8_0(std::span<const float, kFitBlock> x);
SymmetricBlock FitQ4_0(std::span<const float, kFitBlock> x);
AffineBlock FitQ4_1(std::span<const float, kFitBlock> x);
SuperBlock FitQ4K(std::span<const float, kFitSuper> x);

}  // namespace renga
