// A chunk from its f16 form to its int8 page, once per 64 tokens. The definition is in
// attention_int8_portable-inl.h; included after a vec_*-inl.h.
//
// The smallest, the largest and the f16 conversion go through Vec, the codes through
// plain loops: the compiler's own vectorisation keeps their bits. The four codes that lie
// side by side in the page are joined in a word of 32 bits.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

// One more channel, code byte `i` of each word: [32 half + r] -> nibbles of word
// [half][r].
struct NibbleWords {
  uint32_t high[2][16] = {};
  uint32_t low[2][16] = {};
};

static inline void AddNibbles(const uint32_t (&codes)[kChunkPositions], int i,
                              NibbleWords& words) {
  for (int half = 0; half < 2; ++half) {
    for (int r = 0; r < 16; ++r) {
      const uint32_t a = codes[half * 32 + r];
      const uint32_t b = codes[half * 32 + 16 + r];
      words.high[half][r] |= ((a >> 4) | (b & 0xF0u)) << (8 * i);
      words.low[half][r] |= ((a & 15u) | ((b & 15u) << 4)) << (8 * i);
    }
  }
}

// Codes of one channel's 64 keys; k: its positions 0..15, the others 16 hd further each.
static inline void CloseChannel(const uint16_t* k, int64_t hd, uint16_t& min_half,
                                uint16_t& step_half, uint32_t (&codes)[kChunkPositions]) {
  alignas(64) float keys[kChunkPositions];
  Vec largest = Set(-__builtin_inff());
  Vec negated = largest;
  Vec magnitudes = Zero();
  for (int64_t b = 0; b < 4; ++b) {
    const Vec x = Load(k + b * hd * 16);
    Store(keys + b * 16, x);
    largest = Max(largest, x);
    negated = Max(negated, Sub(Zero(), x));
    magnitudes = MaxMagnitude(magnitudes, x);
  }
  __builtin_memset(codes, 0, sizeof codes);
  if (LargestMagnitude(magnitudes, magnitudes) >= 0x7F800000u) {
    min_half = F32ToF16(BitsFloat(0x7FC00000u));
    step_half = 0;
    return;
  }
  const float min = 0.0f - FoldMax(negated);
  const float range = FoldMax(largest) - min;
  min_half = F32ToF16(min);
  step_half = F32ToF16(range / 255.0f + 0.0f);
  if (step_half == 0) return;
  const float inverse = 1.0f / F16ToF32(step_half);
  for (int64_t t = 0; t < kChunkPositions; ++t) {
    float code = ((keys[t] - min) * inverse + kRoundMagic) - kRoundMagic;
    code = code > 255.0f ? 255.0f : code;
    codes[t] = static_cast<uint32_t>(static_cast<int32_t>(code));
  }
}

static void CloseKeys(const KvCloseArgs& args) {
  const int64_t hd = args.head_dim;
  const Int8PageFormat at = Int8PageOf(hd);
  const uint16_t* k = reinterpret_cast<const uint16_t*>(args.open);
  for (int64_t c = 0; c < hd; c += 4) {
    NibbleWords words;
    for (int i = 0; i < 4; ++i) {
      uint16_t min;
      uint16_t step;
      uint32_t codes[kChunkPositions];
      CloseChannel(k + (c + i) * 16, hd, min, step, codes);
      AddNibbles(codes, i, words);
      __builtin_memcpy(args.page + at.key_min + (c + i) * 2, &min, 2);
      __builtin_memcpy(args.page + at.key_step + (c + i) * 2, &step, 2);
    }
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t place = half * hd * 16 + c * 16;
      __builtin_memcpy(args.page + at.key_high + place, words.high[half], 64);
      __builtin_memcpy(args.page + at.key_low + place, words.low[half], 64);
    }
  }
}

// Codes of one token's values, as byte `i` of words [hd].
static inline uint16_t CloseToken(const uint16_t* v, int64_t hd, int i, uint32_t* words) {
  alignas(64) float values[kMaxHeadDim];
  Vec magnitudes = Zero();
  for (int64_t c = 0; c < hd; c += 16) {
    const Vec x = Load(v + c);
    Store(values + c, x);
    magnitudes = MaxMagnitude(magnitudes, x);
  }
  const float largest = BitsFloat(LargestMagnitude(magnitudes, magnitudes));
  if (!(largest < BitsFloat(0x7F800000u))) return F32ToF16(BitsFloat(0x7FC00000u));
  const uint16_t half = F32ToF16(largest / 127.0f);
  if (half == 0) return half;
  const float inverse = 1.0f / F16ToF32(half);
  for (int64_t c = 0; c < hd; ++c) {
    float code = (values[c] * inverse + kRoundMagic) - kRoundMagic;
    code = code < -127.0f ? -127.0f : code;
    code = code > 127.0f ? 127.0f : code;
    words[c] |= (static_cast<uint32_t>(static_cast<int32_t>(code)) & 255u) << (8 * i);
  }
  return half;
}

static void CloseValues(const KvCloseArgs& args) {
  const int64_t hd = args.head_dim;
  const Int8PageFormat at = Int8PageOf(hd);
  const uint16_t* v = reinterpret_cast<const uint16_t*>(args.open) + kChunkPositions * hd;
  for (int64_t t = 0; t < kChunkPositions; t += 4) {
    uint32_t words[kMaxHeadDim] = {};
    for (int i = 0; i < 4; ++i) {
      const uint16_t scale = CloseToken(v + (t + i) * hd, hd, i, words);
      __builtin_memcpy(args.page + at.value_scale + (t + i) * 2, &scale, 2);
    }
    for (int64_t c = 0; c < hd; c += 16) {
      __builtin_memcpy(args.page + at.value + c * kChunkPositions + t * 16, words + c,
                       64);
    }
  }
}

static void KvCloseInt8(const KvCloseArgs& args) {
  CloseKeys(args);
  CloseValues(args);
}

}  // namespace RENGA_ISA
}  // namespace renga
