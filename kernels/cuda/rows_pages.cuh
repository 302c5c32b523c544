// Bodies of the ops that write KV chunks: rotation and append, closing, copying. See
// rows.h; int8 pages are those of kernels/kv_page_format.h.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/rows_shape.h"
#include "kernels/cuda/words.h"
#include "kernels/kv_page_format.h"

namespace renga::cuda {

// Of one (layer, KV head): K, with V at kChunkTokens * hd.
RENGA_DEVICE uint16_t* HeadOf(const ChunkForm& form, int layer, int64_t head_bytes,
                              int kv_head) {
  return reinterpret_cast<uint16_t*>(form.base + layer * form.layer_bytes +
                                     kv_head * head_bytes);
}

// ---- Rotation and append -----------------------------------------------------------

// Where the elements of one head of one row go: element c to to[c * step].
struct RopeTarget {
  uint16_t* to;
  int64_t step;
};

// `head` counts through the query heads, the KV heads' keys, the KV heads' values.
RENGA_DEVICE RopeTarget RopeTargetOf(const RopeAppendArgs& args, int row, int head) {
  const int64_t hd = args.head_dim;
  if (head < args.heads) {
    return {args.q + (static_cast<int64_t>(row) * args.heads + head) * hd, 1};
  }
  const RowPlace place = args.places[row];
  const int slot = place.position % kChunkTokens;
  const bool is_key = head < args.heads + args.kv_heads;
  const int kv_head = head - args.heads - (is_key ? 0 : args.kv_heads);
  uint16_t* k = HeadOf(args.forms[place.form], args.layer, args.head_bytes, kv_head);
  if (is_key) return {k + slot / 16 * hd * 16 + slot % 16, 16};
  return {k + (kChunkTokens + slot) * hd, 1};
}

template <PageElement kElement>
RENGA_DEVICE uint16_t ToElement(float x) {
  return kElement == PageElement::kF16 ? FloatToHalf(x) : FloatToBfloat(x);
}

// q = element(rotate(q) * q_scale), k = element(rotate(k)), v = element(v); rotation of a
// pair: (fma(a, cos, -(b sin)), fma(a, sin, b cos)). Channels from rope_dims on are not
// rotated, but scaled.
// Shapes: qkv [rows][heads + 2 kv_heads][hd], q [rows][heads][hd], k and v into forms.
// Launch: grid (rows, (heads + 2 kv_heads) / 4), a warp per head. Shared: none.
// Traffic: qkv once, q and v once; a key's elements lie 32 bytes apart, so that a row
// alone writes a sector for each (16 rows in order share them, in L2).
template <PageElement kElement, class Ctx>
RENGA_DEVICE void RopeAppend(Ctx& ctx, const RopeAppendArgs& args) {
  const int row = ctx.block_x();
  const int all_heads = args.heads + 2 * args.kv_heads;
  const int head = ctx.block_y() * (kRopeThreads / kWarp) + ctx.warp();
  if (row >= *args.row_count || head >= all_heads) return;
  const float* x =
      args.qkv + (static_cast<int64_t>(row) * all_heads + head) * args.head_dim;
  const RopeTarget target = RopeTargetOf(args, row, head);
  const float scale = head < args.heads ? args.q_scale : 1.0f;
  const int pairs = head < args.heads + args.kv_heads ? args.rope_dims / 2 : 0;
  const int64_t angles = pairs > 0 ? int64_t{args.places[row].position} * pairs : 0;
  RENGA_NO_UNROLL
  for (int i = ctx.lane(); i < pairs; i += kWarp) {
    const int first = args.halves != 0 ? i : 2 * i;
    const int second = args.halves != 0 ? i + pairs : 2 * i + 1;
    const float a = x[first];
    const float b = x[second];
    const float cosine = args.cos[angles + i];
    const float sine = args.sin[angles + i];
    target.to[first * target.step] =
        ToElement<kElement>(Fma(a, cosine, -(b * sine)) * scale);
    target.to[second * target.step] =
        ToElement<kElement>(Fma(a, sine, b * cosine) * scale);
  }
  RENGA_NO_UNROLL
  for (int i = 2 * pairs + ctx.lane(); i < args.head_dim; i += kWarp) {
    target.to[i * target.step] = ToElement<kElement>(x[i] * scale);
  }
}

// ---- Closing -----------------------------------------------------------------------

constexpr uint16_t kHalfNan = 0x7E00;
constexpr uint32_t kHalfInfinity = 0x7C00;

RENGA_DEVICE uint16_t HalfOf(const Vec16& halves, int i) {
  return static_cast<uint16_t>(halves.word[i / 2] >> (16 * (i % 2)));
}
RENGA_DEVICE uint32_t HalfMagnitude(uint16_t half) { return half & 0x7FFFu; }

// What the codes of a channel of keys are made with; inverse 0: all codes are 0.
struct KeyScale {
  float min;
  float inverse;
};

// One channel of the keys: k is its first position. Writes its min and step.
template <class Ctx>
RENGA_DEVICE KeyScale CloseChannel(Ctx& ctx, const uint16_t* k, int hd,
                                   uint16_t* min_half, uint16_t* step_half) {
  uint32_t magnitude = 0;
  float smallest = -kMinusInfinity;
  float largest = kMinusInfinity;
  RENGA_UNROLL
  for (int part = 0; part < 8; ++part) {
    const Vec16 keys = ctx.Load16(k + part / 2 * hd * 16 + part % 2 * 8);
    RENGA_UNROLL
    for (int i = 0; i < 8; ++i) {
      const uint16_t half = HalfOf(keys, i);
      const float key = HalfToFloat(half);
      magnitude = magnitude > HalfMagnitude(half) ? magnitude : HalfMagnitude(half);
      smallest = key < smallest ? key : smallest;
      largest = key > largest ? key : largest;
    }
  }
  if (magnitude >= kHalfInfinity) {
    *min_half = kHalfNan;
    *step_half = 0;
    return {0.0f, 0.0f};
  }
  const float min = smallest + 0.0f;  // Never -0, as the step.
  const uint16_t step = FloatToHalf(Divide(largest - min, 255.0f) + 0.0f);
  *min_half = FloatToHalf(min);
  *step_half = step;
  return {min, step == 0 ? 0.0f : Divide(1.0f, HalfToFloat(step))};
}

// One token's values, by a warp; v is its first channel. Lane 0 writes its scale. Returns
// what its codes are made with; 0: all codes are 0.
template <class Ctx>
RENGA_DEVICE float CloseToken(Ctx& ctx, const uint16_t* v, int hd, uint16_t* scale_half) {
  uint32_t magnitude = 0;
  RENGA_NO_UNROLL
  for (int c = ctx.lane() * 8; c < hd; c += kWarp * 8) {
    const Vec16 values = ctx.Load16(v + c);
    RENGA_UNROLL
    for (int i = 0; i < 8; ++i) {
      const uint32_t next = HalfMagnitude(HalfOf(values, i));
      magnitude = magnitude > next ? magnitude : next;
    }
  }
  RENGA_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t other = ctx.ShuffleXor(magnitude, mask);
    magnitude = magnitude > other ? magnitude : other;
  }
  const bool finite = magnitude < kHalfInfinity;
  const float largest = HalfToFloat(static_cast<uint16_t>(magnitude));
  const uint16_t scale = finite ? FloatToHalf(Divide(largest, 127.0f)) : kHalfNan;
  if (ctx.lane() == 0) *scale_half = scale;
  return finite && scale != 0 ? Divide(1.0f, HalfToFloat(scale)) : 0.0f;
}

RENGA_DEVICE uint32_t KeyCode(uint16_t key, KeyScale scale) {
  if (scale.inverse == 0.0f) return 0;
  const float code = RoundToEven((HalfToFloat(key) - scale.min) * scale.inverse);
  return static_cast<uint32_t>(static_cast<int32_t>(code > 255.0f ? 255.0f : code));
}

RENGA_DEVICE uint32_t ValueCode(uint16_t value, float inverse) {
  if (inverse == 0.0f) return 0;
  float code = RoundToEven(HalfToFloat(value) * inverse);
  code = code < -127.0f ? -127.0f : code;
  code = code > 127.0f ? 127.0f : code;
  return static_cast<uint32_t>(static_cast<int32_t>(code)) & 255u;
}

// What the codes of a chunk are made with, in shared memory.
struct CloseScales {
  float* key_min;        // [hd]
  float* key_inverse;    // [hd]
  float* value_inverse;  // [64]
};

// 4 halves side by side.
RENGA_DEVICE uint64_t LoadHalves(const uint16_t* from) {
  return *reinterpret_cast<const uint64_t*>(from);
}
RENGA_DEVICE uint16_t HalfOf(uint64_t halves, int i) {
  return static_cast<uint16_t>(halves >> (16 * i));
}

// 4 channels (from 4 c4 on) x 4 positions of each of the two 16s of a half (from 4 part
// on): 16 bytes of either plane.
template <class Ctx>
RENGA_DEVICE void StoreKeyCodes(Ctx& ctx, const uint16_t* k, int hd, int task,
                                const CloseScales& scales, uint8_t* page) {
  const Int8PageFormat at = Int8PageOf(hd);
  const int part = task % 4;
  const int c4 = task / 4 % (hd / 4);
  const int half = task / 4 / (hd / 4);
  Vec16 high = {{0, 0, 0, 0}};
  Vec16 low = {{0, 0, 0, 0}};
  RENGA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int c = 4 * c4 + i;
    const KeyScale scale = {scales.key_min[c], scales.key_inverse[c]};
    const uint64_t first = LoadHalves(k + (2 * half * hd + c) * 16 + 4 * part);
    const uint64_t second = LoadHalves(k + ((2 * half + 1) * hd + c) * 16 + 4 * part);
    RENGA_UNROLL
    for (int r = 0; r < 4; ++r) {
      const uint32_t a = KeyCode(HalfOf(first, r), scale);
      const uint32_t b = KeyCode(HalfOf(second, r), scale);
      high.word[r] |= (a >> 4 | (b & 0xF0u)) << (8 * i);
      low.word[r] |= ((a & 15u) | (b & 15u) << 4) << (8 * i);
    }
  }
  const int64_t place = static_cast<int64_t>(task) * 16;
  ctx.Store16(page + at.key_high + place, high);
  ctx.Store16(page + at.key_low + place, low);
}

// 4 tokens (from 4 t4 on) x 4 channels (from 16 c16 + 4 part on): 16 bytes.
template <class Ctx>
RENGA_DEVICE void StoreValueCodes(Ctx& ctx, const uint16_t* v, int hd, int task,
                                  const CloseScales& scales, uint8_t* page) {
  const int part = task % 4;
  const int t4 = task / 4 % 16;
  const int c16 = task / 64;
  Vec16 codes = {{0, 0, 0, 0}};
  RENGA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int token = 4 * t4 + i;
    const uint64_t values = LoadHalves(v + token * hd + 16 * c16 + 4 * part);
    const float inverse = scales.value_inverse[token];
    RENGA_UNROLL
    for (int r = 0; r < 4; ++r) {
      codes.word[r] |= ValueCode(HalfOf(values, r), inverse) << (8 * i);
    }
  }
  ctx.Store16(page + Int8PageOf(hd).value + static_cast<int64_t>(task) * 16, codes);
}

// A whole chunk of one KV head from its f16 form to its int8 page: the codes of
// CpuOps::kv_close_int8, operation by operation.
// Shapes: kv_page_format.h; hd a multiple of 16.
// Launch: grid (items, kv_heads), 256 threads. Scales first (a thread per channel of K, a
// warp per token of V), then the codes, each thread 16 bytes of the page. Shared: float
// [2 hd + 64].
// Traffic: the form once from memory and once more from L1, the page once.
template <class Ctx>
RENGA_DEVICE void KvClose(Ctx& ctx, const KvCloseArgs& args) {
  constexpr int kWarps = kCloseThreads / kWarp;
  if (ctx.block_x() >= *args.item_count) return;
  const CloseItem item = args.items[ctx.block_x()];
  const int hd = args.head_dim;
  const int kv_head = ctx.block_y();
  const uint16_t* k =
      HeadOf(args.forms[item.form], args.layer, args.form_head_bytes, kv_head);
  const uint16_t* v = k + kChunkTokens * hd;
  uint8_t* page =
      args.pool + item.page * args.page_bytes + kv_head * args.page_head_bytes;
  const Int8PageFormat at = Int8PageOf(hd);
  uint16_t* key_min = reinterpret_cast<uint16_t*>(page + at.key_min);
  uint16_t* key_step = reinterpret_cast<uint16_t*>(page + at.key_step);
  uint16_t* value_scale = reinterpret_cast<uint16_t*>(page + at.value_scale);
  const CloseScales scales = {ctx.template Shared<float>(0),
                              ctx.template Shared<float>(hd * 4),
                              ctx.template Shared<float>(hd * 8)};
  RENGA_NO_UNROLL
  for (int c = ctx.thread(); c < hd; c += kCloseThreads) {
    const KeyScale scale = CloseChannel(ctx, k + c * 16, hd, key_min + c, key_step + c);
    scales.key_min[c] = scale.min;
    scales.key_inverse[c] = scale.inverse;
  }
  RENGA_NO_UNROLL
  for (int t = ctx.warp(); t < kChunkTokens; t += kWarps) {
    const float inverse = CloseToken(ctx, v + t * hd, hd, value_scale + t);
    if (ctx.lane() == 0) scales.value_inverse[t] = inverse;
  }
  ctx.Barrier();
  RENGA_NO_UNROLL
  for (int task = ctx.thread(); task < 2 * hd; task += kCloseThreads) {
    StoreKeyCodes(ctx, k, hd, task, scales, page);
  }
  RENGA_NO_UNROLL
  for (int task = ctx.thread(); task < 4 * hd; task += kCloseThreads) {
    StoreValueCodes(ctx, v, hd, task, scales, page);
  }
}

// ---- Copying -----------------------------------------------------------------------

// Elements [first, first + 8) of a run, of which only the first `size` are copied.
template <class Ctx>
RENGA_DEVICE void CopyEight(Ctx& ctx, const uint16_t* from, uint16_t* to, int first,
                            int size) {
  if (first + 8 <= size) {
    ctx.Store16(to + first, ctx.Load16(from + first));
    return;
  }
  RENGA_NO_UNROLL
  for (int i = first; i < size; ++i) to[i] = from[i];
}

// to = from for the first `tokens` positions of a chunk in f16 (or bf16) form.
// Shapes: K [4][hd][16], V [64][hd], per layer and KV head.
// Launch: grid (items, layers * kv_heads), 128 threads. Shared: none.
// Traffic: what is copied, once in and once out; the last 16 positions in pieces of 2
// bytes if they are not whole 8s.
template <class Ctx>
RENGA_DEVICE void KvCopy(Ctx& ctx, const KvCopyArgs& args) {
  if (ctx.block_x() >= *args.item_count) return;
  const CopyItem item = args.items[ctx.block_x()];
  const int layer = args.first_layer + ctx.block_y() / args.kv_heads;
  const int kv_head = ctx.block_y() % args.kv_heads;
  const int hd = args.head_dim;
  const uint16_t* from = HeadOf(item.from, layer, args.head_bytes, kv_head);
  uint16_t* to = HeadOf(item.to, layer, args.head_bytes, kv_head);
  // Two tasks for the 16 positions of a channel.
  const int key_tasks = (item.tokens + 15) / 16 * hd * 2;
  RENGA_NO_UNROLL
  for (int task = ctx.thread(); task < key_tasks; task += kCopyThreads) {
    const int run = task / 2;
    CopyEight(ctx, from + run * 16, to + run * 16, task % 2 * 8,
              item.tokens - run / hd * 16);
  }
  from += kChunkTokens * hd;
  to += kChunkTokens * hd;
  const int values = item.tokens * hd;
  RENGA_NO_UNROLL
  for (int i = ctx.thread() * 8; i < values; i += kCopyThreads * 8) {
    CopyEight(ctx, from, to, i, values);
  }
}

}  // namespace renga::cuda
