// Attention of 16 query rows over one int8 page (kernels/kv_page_format.h), by one warp.
//
// The page's words are their own fragments. A key word holds 4 channels of positions r
// (low nibbles) and r + 16: the B fragment of one k step for two positions, after the
// nibbles of both planes are joined and the bytes widened to f16. A value word holds 4
// positions of a channel: the B fragment of 16 positions, if tile 2 j of the scores has
// position 16 j + 4 (n / 2) + 2 (n % 2) in column n, and tile 2 j + 1 the one after it:
// then a lane's scores are the A fragments of positions 16 j + 4 t + {0, 2} and {1, 3}.
//
// Slices of 32 * hd bytes: 0, 1: half `slice` of the keys, high plane, then low plane; 2,
// 3: values of 32 positions, [hd / 16][8][64].

#pragma once

#include <stdint.h>

#include "kernels/cuda/attention_chunk.cuh"
#include "kernels/cuda/context.h"
#include "kernels/cuda/words.h"
#include "kernels/kv_page_format.h"

namespace renga::cuda {

// Key rows are words of 4 lanes' channels, 4 pieces each; so are value rows.
RENGA_DEVICE int CodePieceAt(int piece) { return piece ^ (piece >> 2 & 2); }

template <int kHeadDim>
struct CodedSlices {
  static constexpr int kCount = 4;
  static constexpr int kBytes = 32 * kHeadDim;
  static constexpr int kKeyLow = Int8PageOf(kHeadDim).key_low;
  static constexpr int kValue = Int8PageOf(kHeadDim).value;
  static constexpr int kHeader = Int8PageOf(kHeadDim).key_min;
  static constexpr int kHeaderBytes = Int8PageOf(kHeadDim).bytes - kHeader;

  const uint8_t* page;

  template <class Ctx>
  RENGA_DEVICE void CopyKeys(Ctx& ctx, int half, uint8_t* to) const {
    RENGA_UNROLL
    for (int i = 0; i < kBytes / 16 / kWarp; ++i) {
      const int piece = ctx.lane() + kWarp * i;
      const int plane = piece < kHeadDim ? 0 : kKeyLow - 16 * kHeadDim;
      ctx.CopyAsync16(to + 16 * CodePieceAt(piece),
                      page + plane + 16 * kHeadDim * half + 16 * piece, true);
    }
  }

  template <class Ctx>
  RENGA_DEVICE void CopyValues(Ctx& ctx, int half, uint8_t* to) const {
    RENGA_UNROLL
    for (int c16 = 0; c16 < kBytes / 16 / kWarp; ++c16) {
      ctx.CopyAsync16(to + 16 * CodePieceAt(kWarp * c16 + ctx.lane()),
                      page + kValue + 1024 * c16 + 512 * half + 16 * ctx.lane(), true);
    }
  }

  template <class Ctx>
  RENGA_DEVICE void Copy(Ctx& ctx, int slice, uint8_t* to) const {
    if (slice < 2) {
      CopyKeys(ctx, slice, to);
    } else {
      CopyValues(ctx, slice - 2, to);
    }
  }
};

RENGA_DEVICE uint64_t LoadWords(const uint8_t* at) {
  return *reinterpret_cast<const uint64_t*>(at);
}
RENGA_DEVICE uint32_t LowWord(uint64_t x) { return static_cast<uint32_t>(x); }
RENGA_DEVICE uint32_t HighWord(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

// Bytes (0, 1) and (2, 3), or (0, 2) and (1, 3), minus 128, as f16: 0x6400 + byte is 1024
// + byte.
template <uint32_t kFirst, uint32_t kSecond>
RENGA_DEVICE void CenteredHalves(uint32_t bytes, uint32_t (&halves)[2]) {
  constexpr uint32_t k1152 = 0x64806480u;
  halves[0] = SubHalf2(BytePerm(bytes, 0x64646464u, kFirst), k1152);
  halves[1] = SubHalf2(BytePerm(bytes, 0x64646464u, kSecond), k1152);
}
RENGA_DEVICE void KeyHalves(uint32_t codes, uint32_t (&halves)[2]) {
  CenteredHalves<0x4140u, 0x4342u>(codes, halves);
}
RENGA_DEVICE void ValueHalves(uint32_t codes, uint32_t (&halves)[2]) {
  CenteredHalves<0x4240u, 0x4341u>(codes ^ 0x80808080u, halves);
}

// w = f16(q * step), base[r] = q . min + 128 (q . step) of row g + 8 r. One mma a step
// has min in its even columns and step in the odd ones: every lane gets both sums of its
// rows.
template <int kHeadDim, class Ctx>
RENGA_DEVICE void ScaleQuery(Ctx& ctx, const uint8_t* header,
                             const uint32_t (&q)[kHeadDim / 16][4],
                             uint32_t (&w)[kHeadDim / 16][4], float (&base)[2]) {
  const uint8_t* mins = header + 8 * (ctx.lane() & 3);
  const uint8_t* steps = mins + 2 * kHeadDim;
  const bool odd = (ctx.lane() >> 2 & 1) != 0;
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  RENGA_UNROLL
  for (int s = 0; s < kHeadDim / 16; ++s) {
    const uint64_t min = LoadWords(mins + 32 * s);
    const uint64_t step = LoadWords(steps + 32 * s);
    const uint64_t column = odd ? step : min;
    const uint32_t b[2] = {LowWord(column), HighWord(column)};
    ctx.MmaF16(sums, q[s], b);
    w[s][0] = MulHalf2(q[s][0], LowWord(step));
    w[s][1] = MulHalf2(q[s][1], LowWord(step));
    w[s][2] = MulHalf2(q[s][2], HighWord(step));
    w[s][3] = MulHalf2(q[s][3], HighWord(step));
  }
  base[0] = Fma(128.0f, sums[1], sums[0]);
  base[1] = Fma(128.0f, sums[3], sums[2]);
}

template <int kHeadDim, class Feed, class Ctx>
RENGA_DEVICE void CodedScores(Ctx& ctx, const Feed& feed,
                              const uint32_t (&w)[kHeadDim / 16][4],
                              const float (&base)[2], float (&s)[8][4]) {
  const int g = ctx.lane() >> 2;
  const int t = ctx.lane() & 3;
  // Positions r and r + 1 of a half, r = 2 g: 8 bytes of the row of channels 4 t..
  const int lane_at = 16 * CodePieceAt(4 * t + (g >> 1)) + 8 * (g & 1);
  RENGA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const uint8_t* slice = feed.Take(ctx, half) + lane_at;
    RENGA_UNROLL
    for (int i = 4 * half; i < 4 * half + 4; ++i) {
      s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
    }
    RENGA_UNROLL
    for (int step = 0; step < kHeadDim / 16; ++step) {
      const uint64_t high = LoadWords(slice + 256 * step);
      const uint64_t low = LoadWords(slice + 16 * kHeadDim + 256 * step);
      RENGA_UNROLL
      for (int word = 0; word < 2; ++word) {
        const uint32_t h = word == 0 ? LowWord(high) : HighWord(high);
        const uint32_t l = word == 0 ? LowWord(low) : HighWord(low);
        uint32_t k[2];
        KeyHalves((h << 4 & 0xF0F0F0F0u) | (l & 0x0F0F0F0Fu), k);
        ctx.MmaF16(s[4 * half + word], w[step], k);
        KeyHalves((h & 0xF0F0F0F0u) | (l >> 4 & 0x0F0F0F0Fu), k);
        ctx.MmaF16(s[4 * half + 2 + word], w[step], k);
      }
    }
    RENGA_UNROLL
    for (int i = 4 * half; i < 4 * half + 4; ++i) {
      s[i][0] += base[0];
      s[i][1] += base[0];
      s[i][2] += base[1];
      s[i][3] += base[1];
    }
    feed.Done(ctx, half);
  }
}

// p * scale / z in place of p; returns z.
template <int kHeadDim, class Ctx>
RENGA_DEVICE float ScaleWeights(Ctx& ctx, const uint8_t* header, float (&p)[8][4]) {
  const uint8_t* scales = header + 4 * kHeadDim + 8 * (ctx.lane() & 3);
  float scale[4][4];
  float largest = 0x1.0p-24f;  // The smallest f16; keeps z from 0.
  RENGA_UNROLL
  for (int j = 0; j < 4; ++j) {
    const uint64_t four = LoadWords(scales + 32 * j);
    RENGA_UNROLL
    for (int i = 0; i < 4; ++i) {
      scale[j][i] = HalfToFloat(static_cast<uint16_t>(four >> (16 * i)));
      largest = Max(largest, BitsAsFloat(FloatAsBits(scale[j][i]) & 0x7FFFFFFFu));
    }
  }
  largest = Max(largest, ctx.ShuffleXor(largest, 1));
  largest = Max(largest, ctx.ShuffleXor(largest, 2));
  const uint32_t exponent = FloatAsBits(largest) & 0x7F800000u;
  const float inverse = BitsAsFloat((254u << 23) - exponent);
  RENGA_UNROLL
  for (int j = 0; j < 4; ++j) {
    RENGA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float factor = scale[j][i] * inverse;
      float(&tile)[4] = p[2 * j + (i & 1)];
      tile[i >> 1] *= factor;
      tile[2 + (i >> 1)] *= factor;
    }
  }
  return BitsAsFloat(exponent);
}

template <int kHeadDim, class Feed, class Ctx>
RENGA_DEVICE void CodedValues(Ctx& ctx, const Feed& feed, const uint32_t (&p)[4][4],
                              float (&o)[kHeadDim / 8][4]) {
  const int g = ctx.lane() >> 2;
  const int t = ctx.lane() & 3;
  // Positions 4 t.. of 16, channels g and g + 8.
  const int first_at = 16 * CodePieceAt(4 * t + (g >> 2)) + 4 * (g & 3);
  const int second_at = 16 * CodePieceAt(4 * t + (g >> 2) + 2) + 4 * (g & 3);
  RENGA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const uint8_t* slice = feed.Take(ctx, 2 + half);
    RENGA_UNROLL
    for (int i = 0; i < 2; ++i) {
      RENGA_UNROLL
      for (int c16 = 0; c16 < kHeadDim / 16; ++c16) {
        const uint8_t* words = slice + 512 * c16 + 256 * i;
        uint32_t v[2];
        ValueHalves(*reinterpret_cast<const uint32_t*>(words + first_at), v);
        ctx.MmaF16(o[2 * c16], p[2 * half + i], v);
        ValueHalves(*reinterpret_cast<const uint32_t*>(words + second_at), v);
        ctx.MmaF16(o[2 * c16 + 1], p[2 * half + i], v);
      }
    }
    feed.Done(ctx, 2 + half);
  }
}

// `header`: key_min and what follows it in the page, in global or shared memory.
template <int kHeadDim, class Feed, class Ctx>
RENGA_DEVICE void AttendCodedChunk(Ctx& ctx, const Feed& feed, const uint8_t* header,
                                   const uint32_t (&q)[kHeadDim / 16][4],
                                   Partial<kHeadDim>& out) {
  float s[8][4];
  {
    uint32_t w[kHeadDim / 16][4];
    float base[2];
    ScaleQuery<kHeadDim>(ctx, header, q, w, base);
    CodedScores<kHeadDim>(ctx, feed, w, base, s);
  }
  SoftmaxRows(ctx, s, out.m, out.l);
  const float z = ScaleWeights<kHeadDim>(ctx, header, s);
  uint32_t p[4][4];
  PackWeights<HalfElement>(s, p);
  ClearValues<kHeadDim>(out.o);
  CodedValues<kHeadDim>(ctx, feed, p, out.o);
  RENGA_UNROLL
  for (int i = 0; i < kHeadDim / 8; ++i) {
    RENGA_UNROLL
    for (int e = 0; e < 4; ++e) out.o[i][e] *= z;
  }
}

}  // namespace renga::cuda
