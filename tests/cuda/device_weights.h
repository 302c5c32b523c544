// Random weights in the form of a file, with their values from the definitions of the
// formats (kernels/block_format.h), and rounding to f16 in double precision. Shares no
// code with the packing and the kernels.
//
// Thread safety: plain functions.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "kernels/block_format.h"

namespace renga::test {

// The f16 next to `value`, ties to even, as a double.
inline double RoundToHalf(double value) {
  if (value == 0.0) return value;
  const int exponent = std::max(std::ilogb(value), -14);
  const double unit = std::ldexp(1.0, exponent - 10);
  return std::nearbyint(value / unit) * unit;
}
// The bits of a double that is an f16.
inline uint16_t HalfBits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  if (magnitude == 0.0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -14);
  const auto mantissa = static_cast<int>(std::ldexp(magnitude, 10 - exponent));
  const int bits = mantissa < 1024 ? mantissa : (exponent + 14) * 1024 + mantissa;
  return static_cast<uint16_t>(sign | bits);
}

struct FileWeights {
  WeightType type{};
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<uint8_t> file;
  std::vector<double> exact;  // [rows][cols]: what the file says.
  std::vector<double> half;   // The same as f16; Q4_K through f32.

  double Exact(int64_t row, int64_t col) const {
    return exact[static_cast<size_t>(row * cols + col)];
  }
  double Half(int64_t row, int64_t col) const {
    return half[static_cast<size_t>(row * cols + col)];
  }
};

// Fills in a FileWeights, value by value.
class FileWeightsMaker {
 public:
  FileWeightsMaker(WeightType type, int64_t rows, int64_t cols, uint32_t seed)
      : random_(seed) {
    w_.type = type;
    w_.rows = rows;
    w_.cols = cols;
    for (int64_t i = 0; i < rows * cols / FileBlockValues(type); ++i) Block();
  }
  FileWeights Take() { return std::move(w_); }

 private:
  double RandomHalf(double scale) { return RoundToHalf(scale * normal_(random_)); }
  int Code(int count) {
    return static_cast<int>(random_() % static_cast<uint32_t>(count));
  }

  void PutByte(int byte) { w_.file.push_back(static_cast<uint8_t>(byte)); }
  void PutHalf(double half) {
    PutByte(HalfBits(half) & 255);
    PutByte(HalfBits(half) >> 8);
  }
  void Value(double exact) {
    w_.exact.push_back(exact);
    w_.half.push_back(RoundToHalf(exact));
  }
  // 32 codes, element i in the low, i + 16 in the high nibble of byte i.
  void PutNibbles(const std::vector<int>& codes) {
    for (size_t i = 0; i < 16; ++i) PutByte(codes[i] + codes[i + 16] * 16);
  }
  std::vector<int> Codes() {
    std::vector<int> codes(32);
    for (int& code : codes) code = Code(16);
    return codes;
  }

  void Block() {
    switch (w_.type) {
      case WeightType::kF32: {
        const auto value = static_cast<float>(0.05 * normal_(random_));
        uint8_t bytes[4];
        std::memcpy(bytes, &value, 4);
        w_.file.insert(w_.file.end(), bytes, bytes + 4);
        return Value(static_cast<double>(value));
      }
      case WeightType::kBf16: {
        const auto value = static_cast<float>(0.05 * normal_(random_));
        const uint32_t bits = FloatBits(value) & 0xffff0000u;
        PutByte(static_cast<int>(bits >> 16 & 255));
        PutByte(static_cast<int>(bits >> 24));
        return Value(static_cast<double>(BitsFloat(bits)));
      }
      case WeightType::kF16: {
        const double value = RandomHalf(0.05);
        PutHalf(value);
        return Value(value);
      }
      case WeightType::kQ8_0: {
        const double d = RandomHalf(0.001);
        PutHalf(d);
        for (int i = 0; i < 32; ++i) {
          const int code = Code(256) - 128;
          PutByte(code & 255);
          Value(d * code);
        }
        return;
      }
      case WeightType::kQ4_1: {
        const double d = RandomHalf(0.01);
        const double m = RandomHalf(0.08);
        PutHalf(d);
        PutHalf(m);
        const std::vector<int> codes = Codes();
        PutNibbles(codes);
        for (const int code : codes) Value(d * code + m);
        return;
      }
      case WeightType::kQ4_0: {
        const double d = RandomHalf(0.01);
        PutHalf(d);
        const std::vector<int> codes = Codes();
        PutNibbles(codes);
        for (const int code : codes) Value(d * (code - 8));
        return;
      }
      case WeightType::kQ4_K:
        return Super();
    }
  }

  // 256 values: the 6 bits of a scale and a min are split over 12 bytes.
  void Super() {
    const double d = RandomHalf(0.0003);
    const double dmin = RandomHalf(0.002);
    int scale[8];
    int min[8];
    std::vector<std::vector<int>> codes;
    for (int j = 0; j < 8; ++j) {
      scale[j] = Code(64);
      min[j] = Code(64);
      codes.push_back(Codes());
      for (const int code : codes.back()) {
        const double exact = d * scale[j] * code - dmin * min[j];
        w_.exact.push_back(exact);
        w_.half.push_back(RoundToHalf(static_cast<double>(static_cast<float>(exact))));
      }
    }
    PutHalf(d);
    PutHalf(dmin);
    for (int j = 0; j < 4; ++j) PutByte(scale[j] + scale[j + 4] / 16 * 64);
    for (int j = 0; j < 4; ++j) PutByte(min[j] + min[j + 4] / 16 * 64);
    for (int j = 0; j < 4; ++j) PutByte(scale[j + 4] % 16 + min[j + 4] % 16 * 16);
    for (size_t pair = 0; pair < 4; ++pair) {
      for (size_t i = 0; i < 32; ++i) {
        PutByte(codes[2 * pair][i] + codes[2 * pair + 1][i] * 16);
      }
    }
  }

  std::mt19937 random_;
  std::normal_distribution<double> normal_{0.0, 1.0};
  FileWeights w_;
};

inline FileWeights RandomFileWeights(WeightType type, int64_t rows, int64_t cols,
                                     uint32_t seed) {
  return FileWeightsMaker(type, rows, cols, seed).Take();
}

inline const char* WeightName(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return "f32";
    case WeightType::kF16:
      return "f16";
    case WeightType::kQ8_0:
      return "q8_0";
    case WeightType::kQ4_1:
      return "q4_1";
    case WeightType::kQ4_0:
      return "q4_0";
    case WeightType::kQ4_K:
      return "q4_K";
    case WeightType::kBf16:
      return "bf16";
  }
  return "?";
}

}  // namespace renga::test
