// The definition of int8 KV pages: how a chunk is closed (kv_close_int8) and what a query
// reads from one (attend_int8). Formulas: kernels/ops.h; layout:
// kernels/kv_page_format.h.

#pragma once

#include <stdint.h>

#include "kernels/cpu/attention_portable-inl.h"
#include "kernels/cpu/exp2-inl.h"
#include "kernels/cpu/scalar-inl.h"
#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

static inline void StoreF16(uint8_t* data, float value) { F16::Store(data, value); }

// round_to_even(value), of which the result lies in [low, high].
static inline int32_t RoundTo(float value, float low, float high) {
  const float rounded = (value + kRoundMagic) - kRoundMagic;
  return static_cast<int32_t>(rounded < low ? low : rounded > high ? high : rounded);
}

static inline bool IsFinite(float x) {
  return (FloatBits(x) & 0x7FFFFFFFu) < 0x7F800000u;
}

// Where the nibble of (position, channel) is: the byte's offset, and the shift in it.
struct NibblePlace {
  int64_t byte;
  int shift;
};
static inline NibblePlace KeyPlace(int64_t hd, int64_t t, int64_t c) {
  return {(t / 32 * (hd / 4) + c / 4) * 64 + 4 * (t % 16) + c % 4, t % 32 < 16 ? 0 : 4};
}
static inline int64_t ValuePlace(int64_t t, int64_t c) {
  return (c / 16 * 16 + t / 4) * 64 + 4 * (c % 16) + t % 4;
}

static void CloseChannel(const KvCloseArgs& args, int64_t c) {
  const int64_t hd = args.head_dim;
  const Int8PageFormat at = Int8PageOf(hd);
  float keys[kChunkPositions];
  bool finite = true;
  for (int64_t t = 0; t < kChunkPositions; ++t) {
    keys[t] = LoadF16(args.open + (t / 16 * hd * 16 + c * 16 + t % 16) * 2);
    finite = finite && IsFinite(keys[t]);
  }
  float smallest = keys[0];
  float largest = keys[0];
  for (const float key : keys) {
    smallest = key < smallest ? key : smallest;
    largest = key > largest ? key : largest;
  }
  uint8_t* step_at = args.page + at.key_step + c * 2;
  StoreF16(args.page + at.key_min + c * 2,
           finite ? smallest + 0.0f : BitsFloat(0x7FC00000u));
  StoreF16(step_at, finite ? (largest - smallest) / 255.0f + 0.0f : 0.0f);
  const float step = LoadF16(step_at);
  for (int64_t t = 0; t < kChunkPositions; ++t) {
    const int32_t code =
        step > 0.0f ? RoundTo((keys[t] - smallest) * (1.0f / step), 0.0f, 255.0f) : 0;
    const NibblePlace place = KeyPlace(hd, t, c);
    const int clear = 0xF0 >> place.shift;
    uint8_t& high = args.page[at.key_high + place.byte];
    uint8_t& low = args.page[at.key_low + place.byte];
    high = static_cast<uint8_t>((high & clear) | (code >> 4) << place.shift);
    low = static_cast<uint8_t>((low & clear) | (code & 15) << place.shift);
  }
}

static void CloseToken(const KvCloseArgs& args, int64_t t) {
  const int64_t hd = args.head_dim;
  const Int8PageFormat at = Int8PageOf(hd);
  const uint8_t* values = args.open + (kChunkPositions + t) * hd * 2;
  float largest = 0.0f;
  bool finite = true;
  for (int64_t c = 0; c < hd; ++c) {
    const float magnitude = __builtin_fabsf(LoadF16(values + c * 2));
    finite = finite && IsFinite(magnitude);
    largest = magnitude > largest ? magnitude : largest;
  }
  uint8_t* scale_at = args.page + at.value_scale + t * 2;
  StoreF16(scale_at, finite ? largest / 127.0f : BitsFloat(0x7FC00000u));
  const float scale = LoadF16(scale_at);
  for (int64_t c = 0; c < hd; ++c) {
    const float value = LoadF16(values + c * 2);
    args.page[at.value + ValuePlace(t, c)] = static_cast<uint8_t>(
        scale > 0.0f ? RoundTo(value * (1.0f / scale), -127.0f, 127.0f) : 0);
  }
}

static void KvCloseInt8(const KvCloseArgs& args) {
  for (int64_t c = 0; c < args.head_dim; ++c) CloseChannel(args, c);
  for (int64_t t = 0; t < kChunkPositions; ++t) CloseToken(args, t);
}

// Codes of n values for the largest code `limit`; returns the scale.
static float CodeRow(const float* x, int64_t n, float limit, int32_t* codes) {
  uint32_t bits = 0;  // Of max|x|: ordered like the values, NaN above all.
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = FloatBits(x[i]) & 0x7FFFFFFFu;
    if (magnitude > bits) bits = magnitude;
  }
  const float largest = BitsFloat(bits);
  const bool finite = IsFinite(largest);
  const bool coded = finite && largest >= 1e-30f;
  for (int64_t i = 0; i < n; ++i) {
    const float value = coded ? x[i] * (limit / largest) : 0.0f;
    codes[i] = limit == kLargestCode ? RoundCode(value) : RoundTo(value, 0.0f, limit);
  }
  return coded ? largest / limit : finite ? 0.0f : BitsFloat(0x7FC00000u);
}

static void ClosedScores(const float* q, const uint8_t* page, int64_t hd, float* scores) {
  const Int8PageFormat at = Int8PageOf(hd);
  float w[kMaxHeadDim];
  float sums[16] = {};
  for (int64_t c = 0; c < hd; ++c) {
    w[c] = q[c] * LoadF16(page + at.key_step + c * 2);
    sums[c % 16] = Fma(q[c], LoadF16(page + at.key_min + c * 2), sums[c % 16]);
  }
  const float base = FoldSum(sums);
  int32_t codes[kMaxHeadDim];
  const float s = CodeRow(w, hd, kLargestCode, codes);
  for (int64_t t = 0; t < kChunkPositions; ++t) {
    int32_t dot = 0;
    for (int64_t c = 0; c < hd; ++c) {
      const NibblePlace place = KeyPlace(hd, t, c);
      const int high = page[at.key_high + place.byte] >> place.shift & 15;
      const int low = page[at.key_low + place.byte] >> place.shift & 15;
      dot += (16 * high + low) * codes[c];
    }
    scores[t] = Fma(static_cast<float>(dot), s, base);
  }
}

static void ClosedChunk(const float* q, const uint8_t* page, int64_t hd, Partial& out) {
  const Int8PageFormat at = Int8PageOf(hd);
  float p[kChunkPositions];
  ClosedScores(q, page, hd, p);
  Softmax(p, kChunkPositions, out.m, out.l);
  float u[kChunkPositions];
  for (int64_t t = 0; t < kChunkPositions; ++t) {
    u[t] = p[t] * __builtin_fabsf(LoadF16(page + at.value_scale + t * 2));
  }
  int32_t codes[kChunkPositions];
  const float z = CodeRow(u, kChunkPositions, kLargestWeightCode, codes);
  for (int64_t c = 0; c < hd; ++c) {
    int32_t dot = 0;
    for (int64_t t = 0; t < kChunkPositions; ++t) {
      dot += static_cast<int8_t>(page[at.value + ValuePlace(t, c)]) * codes[t];
    }
    out.o[c] = static_cast<float>(dot) * z;
  }
}

// The pages of `pool` are int8; a query's own chunk is f16, in `own`.
struct Int8 {};

template <>
void ReadChunk<Int8>(const AttendArgs& args, const float* q, int64_t position,
                     int64_t chunk, Partial& out) {
  if (position / kChunkPositions == chunk) {
    Chunk<F16>(q, args.own[chunk - args.first_own_chunk], args.head_dim,
               position % kChunkPositions + 1, out);
  } else {
    ClosedChunk(q, args.pool + args.pages[chunk] * args.page_stride, args.head_dim, out);
  }
}

}  // namespace RENGA_ISA
}  // namespace renga
