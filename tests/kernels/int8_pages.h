// What the tests of int8 KV pages share: chunks in their f16 form, and a page read back
// by the drawing of kernels/kv_page_format.h, in double precision, sharing no code with
// the kernels.

#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/kernels/kernel_cases.h"

namespace renga {

inline uint16_t HalfAt(const uint8_t* data) {
  return static_cast<uint16_t>(data[0] | data[1] << 8);
}

// K and V of 64 positions.
struct HalfChunk {
  int64_t hd;
  std::vector<uint16_t> k, v;  // [64, hd]

  // As an f16 page: K [4][hd][16], then V [64][hd].
  std::vector<uint8_t> Page() const {
    std::vector<uint16_t> halves(static_cast<size_t>(128 * hd));
    for (int64_t t = 0; t < 64; ++t) {
      for (int64_t c = 0; c < hd; ++c) {
        const size_t from = static_cast<size_t>(t * hd + c);
        halves[static_cast<size_t>(t / 16 * hd * 16 + c * 16 + t % 16)] = k[from];
        halves[static_cast<size_t>(64 * hd) + from] = v[from];
      }
    }
    std::vector<uint8_t> bytes(halves.size() * 2);
    std::memcpy(bytes.data(), halves.data(), bytes.size());
    return bytes;
  }
};

inline HalfChunk RandomChunk(int64_t hd, uint32_t seed, float scale = 1.0f) {
  HalfChunk chunk{.hd = hd, .k = {}, .v = {}};
  for (const float x : RandomFloats(64 * hd, seed, scale)) chunk.k.push_back(F32ToF16(x));
  for (const float x : RandomFloats(64 * hd, seed + 1, scale))
    chunk.v.push_back(F32ToF16(x));
  return chunk;
}

// One head of an int8 page.
struct DecodedPage {
  int64_t hd;
  std::vector<double> min, step;    // [hd]
  std::vector<double> scale;        // [64]
  std::vector<int> k_code, v_code;  // [64, hd]

  double Key(int64_t t, int64_t c) const {
    const size_t channel = static_cast<size_t>(c);
    return min[channel] + step[channel] * k_code[static_cast<size_t>(t * hd + c)];
  }
  double Value(int64_t t, int64_t c) const {
    return scale[static_cast<size_t>(t)] * v_code[static_cast<size_t>(t * hd + c)];
  }
};

inline DecodedPage Decode(const uint8_t* page, int64_t hd) {
  DecodedPage out{
      .hd = hd, .min = {}, .step = {}, .scale = {}, .k_code = {}, .v_code = {}};
  const uint8_t* key_high = page;
  const uint8_t* key_low = key_high + 32 * hd;
  const uint8_t* value = key_low + 32 * hd;
  const uint8_t* min = value + 64 * hd;
  const uint8_t* step = min + 2 * hd;
  const uint8_t* scale = step + 2 * hd;
  for (int64_t c = 0; c < hd; ++c) {
    out.min.push_back(HalfValue(HalfAt(min + 2 * c)));
    out.step.push_back(HalfValue(HalfAt(step + 2 * c)));
  }
  for (int64_t t = 0; t < 64; ++t) {
    out.scale.push_back(HalfValue(HalfAt(scale + 2 * t)));
    const int64_t half = t / 32;
    const int64_t r = t % 16;
    const bool upper = t % 32 >= 16;
    for (int64_t c = 0; c < hd; ++c) {
      const int64_t at = (half * (hd / 4) + c / 4) * 64 + 4 * r + c % 4;
      const int high = upper ? key_high[at] >> 4 : key_high[at] & 15;
      const int low = upper ? key_low[at] >> 4 : key_low[at] & 15;
      out.k_code.push_back(high * 16 + low);
      const int byte = value[(c / 16 * 16 + t / 4) * 64 + 4 * (c % 16) + t % 4];
      out.v_code.push_back(byte < 128 ? byte : byte - 256);
    }
  }
  return out;
}

// Bytes of one head's page by the same drawing.
inline int64_t PageBytes(int64_t hd) { return 128 * hd + 4 * hd + 128; }

// The page of a chunk, `fill` in every byte before it is written, 64 bytes of guard.
inline std::vector<uint8_t> Closed(const CpuOps& ops, const HalfChunk& chunk,
                                   uint8_t fill = 0xA5) {
  std::vector<uint8_t> page(static_cast<size_t>(PageBytes(chunk.hd)) + 64, fill);
  const std::vector<uint8_t> open = chunk.Page();
  ops.kv_close_int8({.open = open.data(),
                     .page = page.data(),
                     .head_dim = static_cast<int32_t>(chunk.hd)});
  return page;
}

}  // namespace renga
