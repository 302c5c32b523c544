// Layout of an int8 KV page: one chunk of 64 positions of one KV head, closed, that is
// with all its positions written, never changed again.
//
// Keys are coded per channel and page, values per token:
//   k[t][c] = min[c] + step[c] * code[t][c],  code in [0, 255]
//   v[t][c] = scale[t] * code[t][c],          code in [-127, 127]
//
// Bytes of one head, in this order, hd = head_dim (a multiple of 16):
//
//   key_high  [half 0..1][c4 0..hd/4-1][64]   the codes' high nibbles
//   key_low   the same                        their low nibbles
//             byte 4 r + i (r 0..15, i 0..3): low nibble = position 32 half + r,
//             high nibble = position 32 half + 16 + r; channel 4 c4 + i
//   value     [c16 0..hd/16-1][t4 0..15][64]  int8
//             byte 4 r + i: channel 16 c16 + r, position 4 t4 + i
//   key_min   f16 [hd]
//   key_step  f16 [hd]
//   value_scale f16 [64]
//
// The high nibbles stand alone so that a sketch of the keys can be read without the rest.
// The codes are a pure function of the page's f16 form (CpuOps::kv_close_int8).

#pragma once

#include <stdint.h>

// For functions that CUDA kernels call too.
#if defined(__CUDACC__)
#define RENGA_ALSO_DEVICE __host__ __device__
#else
#define RENGA_ALSO_DEVICE
#endif

namespace renga {

// A query's codes against keys go up to kLargestCode of kernels/block_format.h, those of
// its probabilities against values up to this.
constexpr float kLargestWeightCode = 32767.0f;

struct Int8PageFormat {
  int64_t key_high;
  int64_t key_low;
  int64_t value;
  int64_t key_min;
  int64_t key_step;
  int64_t value_scale;
  int64_t bytes;  // Of one head; a multiple of 64.
};

RENGA_ALSO_DEVICE static constexpr inline Int8PageFormat Int8PageOf(int64_t head_dim) {
  Int8PageFormat at{};
  at.key_high = 0;
  at.key_low = 32 * head_dim;
  at.value = 64 * head_dim;
  at.key_min = 128 * head_dim;
  at.key_step = at.key_min + 2 * head_dim;
  at.value_scale = at.key_step + 2 * head_dim;
  at.bytes = at.value_scale + 2 * 64;
  return at;
}

}  // namespace renga
