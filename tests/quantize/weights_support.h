// Weights for the tests of the quantiser, and what their blocks mean, read by the
// drawings in kernels/block_format.h without the code under test.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace renga::test {

// Normal with a few large ones, as weights are. The same on every machine: sums of
// uniform numbers.
inline std::vector<float> WeightLike(size_t count, uint64_t seed, float scale = 0.05f) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
    if (random() % 64 == 0) sum *= 4.0;
    value = scale * static_cast<float>(sum);
  }
  return values;
}

inline double HalfAt(const std::byte* data) {
  uint16_t half = 0;
  std::memcpy(&half, data, sizeof half);
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24)
                                         : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

inline int ByteAt(const std::byte* data, int i) { return static_cast<int>(data[i]); }

// Values of one block of 32 (Q8_0 8, Q4_0 2, Q4_1 3) or 256 (Q4_K 12).
inline std::vector<double> BlockValues(uint32_t type, const std::byte* data) {
  std::vector<double> values;
  if (type == 8) {
    for (int i = 0; i < 32; ++i) {
      values.push_back(HalfAt(data) * static_cast<int8_t>(ByteAt(data, 2 + i)));
    }
  } else if (type == 2 || type == 3) {
    const int header = type == 2 ? 2 : 4;
    for (int i = 0; i < 32; ++i) {
      const int byte = ByteAt(data, header + i % 16);
      const int code = i < 16 ? byte % 16 : byte / 16;
      values.push_back(type == 2 ? HalfAt(data) * (code - 8)
                                 : HalfAt(data) * code + HalfAt(data + 2));
    }
  } else {
    for (int i = 0; i < 256; ++i) {
      const int b = i / 32;
      const auto packed = [&](int at) { return ByteAt(data, 4 + at); };
      const int scale =
          b < 4 ? packed(b) % 64 : packed(b + 4) % 16 + packed(b - 4) / 64 * 16;
      const int min =
          b < 4 ? packed(b + 4) % 64 : packed(b + 4) / 16 + packed(b) / 64 * 16;
      const int byte = ByteAt(data, 16 + b / 2 * 32 + i % 32);
      const int code = b % 2 == 0 ? byte % 16 : byte / 16;
      values.push_back(HalfAt(data) * scale * code - HalfAt(data + 2) * min);
    }
  }
  return values;
}

}  // namespace renga::test
