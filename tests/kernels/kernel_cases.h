// What the kernel tests share: every op table this machine can run, buffers whose
// unwritten places are NaN and whose ends are guarded, random data, packed weights with
// their double-precision values.

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/ops.h"

namespace renga {

// The portable table first.
inline std::vector<const CpuOps*> MachineOps() {
  std::vector<const CpuOps*> tables;
  for (const char* name : kCpuOpsName) {
    if (const CpuOps* ops = FindCpuOps(name)) tables.push_back(ops);
  }
  return tables;
}

// `size` NaNs between two guards.
class GuardedFloats {
 public:
  explicit GuardedFloats(int64_t size)
      : values_(static_cast<size_t>(size) + 2 * kGuards) {
    for (float& value : values_) value = std::numeric_limits<float>::quiet_NaN();
    for (size_t i = 0; i < kGuards; ++i) values_[i] = *(values_.end() - 1 - i) = kGuard;
  }
  float* data() { return values_.data() + kGuards; }
  float operator[](int64_t i) const { return values_[static_cast<size_t>(i) + kGuards]; }
  int64_t size() const { return static_cast<int64_t>(values_.size()) - 2 * kGuards; }
  bool GuardsIntact() const {
    for (size_t i = 0; i < kGuards; ++i) {
      if (values_[i] != kGuard || *(values_.end() - 1 - i) != kGuard) return false;
    }
    return true;
  }
  bool SameBits(const GuardedFloats& other) const {
    return values_.size() == other.values_.size() &&
           std::memcmp(values_.data(), other.values_.data(), values_.size() * 4) == 0;
  }

 private:
  static constexpr size_t kGuards = 16;
  static constexpr float kGuard = 12345.75f;
  std::vector<float> values_;
};

inline std::vector<float> RandomFloats(int64_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

// A random weight matrix in the file's form, its panels, and its exact values.
struct TestWeights {
  WeightType type;
  int64_t rows;
  int64_t cols;
  std::vector<uint8_t> file;
  std::vector<uint8_t> panels;
  std::vector<double> values;  // [rows, cols]
};

inline void AppendF16(std::vector<uint8_t>& out, uint16_t half) {
  out.push_back(static_cast<uint8_t>(half & 255));
  out.push_back(static_cast<uint8_t>(half >> 8));
}

inline double HalfValue(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24)
                                         : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

// 256 values. Scale and min of each 32 have 6 bits: the lower four blocks' in the low
// bits of bytes 0..3 and 4..7, of the upper four's the low four bits in bytes 8..11 and
// the two highest in those of bytes 0..7.
inline void AppendQ4_KBlock(TestWeights& w, std::mt19937& random, uint16_t d,
                            uint16_t dmin) {
  int scale[8];
  int min[8];
  int q[8][32];
  for (int j = 0; j < 8; ++j) {
    scale[j] = static_cast<int>(random() % 64);
    min[j] = static_cast<int>(random() % 64);
    for (int& code : q[j]) code = static_cast<int>(random() % 16);
    for (const int code : q[j]) {
      w.values.push_back(HalfValue(d) * scale[j] * code - HalfValue(dmin) * min[j]);
    }
  }
  AppendF16(w.file, d);
  AppendF16(w.file, dmin);
  const auto push = [&w](int byte) { w.file.push_back(static_cast<uint8_t>(byte)); };
  for (int j = 0; j < 4; ++j) push(scale[j] + scale[j + 4] / 16 * 64);
  for (int j = 0; j < 4; ++j) push(min[j] + min[j + 4] / 16 * 64);
  for (int j = 0; j < 4; ++j) push(scale[j + 4] % 16 + min[j + 4] % 16 * 16);
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) push(q[2 * pair][i] + q[2 * pair + 1][i] * 16);
  }
}

// One row, by the definition of each format in kernels/block_format.h.
inline void AppendWeightRow(TestWeights& w, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 0.05f);
  const auto half = [&] { return F32ToF16(normal(random)); };
  if (!IsQuantised(w.type)) {
    for (int64_t k = 0; k < w.cols; ++k) {
      const uint16_t value = half();
      const float wide = static_cast<float>(HalfValue(value)) * 1.001f;
      if (w.type == WeightType::kBf16) {
        const uint32_t upper = FloatBits(wide) >> 16;
        AppendF16(w.file, static_cast<uint16_t>(upper));
        w.values.push_back(static_cast<double>(BitsFloat(upper << 16)));
        continue;
      }
      if (w.type == WeightType::kF16) {
        AppendF16(w.file, value);
      } else {
        uint8_t bytes[4];
        std::memcpy(bytes, &wide, 4);
        w.file.insert(w.file.end(), bytes, bytes + 4);
      }
      w.values.push_back(w.type == WeightType::kF16 ? HalfValue(value)
                                                    : static_cast<double>(wide));
    }
    return;
  }
  for (int64_t b = 0; b < w.cols / FileBlockValues(w.type); ++b) {
    if (w.type == WeightType::kQ4_K) {
      AppendQ4_KBlock(w, random, half(), half());
      continue;
    }
    const uint16_t d = half();
    AppendF16(w.file, d);
    if (w.type == WeightType::kQ8_0) {
      for (int i = 0; i < 32; ++i) {
        const int q = static_cast<int>(random() % 256) - 128;
        w.file.push_back(static_cast<uint8_t>(q));
        w.values.push_back(HalfValue(d) * q);
      }
      continue;
    }
    double m = -8 * HalfValue(d);
    if (w.type == WeightType::kQ4_1) {
      const uint16_t least = half();
      AppendF16(w.file, least);
      m = HalfValue(least);
    }
    int q[32];
    for (int& code : q) code = static_cast<int>(random() % 16);
    for (int i = 0; i < 16; ++i) {
      w.file.push_back(static_cast<uint8_t>(q[i] | q[i + 16] << 4));
    }
    for (const int code : q) w.values.push_back(HalfValue(d) * code + m);
  }
}

inline TestWeights RandomWeights(WeightType type, int64_t rows, int64_t cols,
                                 uint32_t seed) {
  TestWeights w{
      .type = type, .rows = rows, .cols = cols, .file = {}, .panels = {}, .values = {}};
  std::mt19937 random(seed);
  for (int64_t row = 0; row < rows; ++row) AppendWeightRow(w, random);
  w.panels.resize(static_cast<size_t>((rows + 31) / 32 * PanelBytes(type, cols)));
  PackPanels(type, w.file.data(), rows, cols, w.panels.data());
  return w;
}

inline std::string TypeName(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return "F32";
    case WeightType::kF16:
      return "F16";
    case WeightType::kQ8_0:
      return "Q8_0";
    case WeightType::kQ4_1:
      return "Q4_1";
    case WeightType::kQ4_0:
      return "Q4_0";
    case WeightType::kQ4_K:
      return "Q4_K";
    case WeightType::kBf16:
      return "BF16";
  }
  return "?";
}

constexpr WeightType kAllTypes[] = {
    WeightType::kF32,  WeightType::kF16,  WeightType::kBf16, WeightType::kQ8_0,
    WeightType::kQ4_1, WeightType::kQ4_0, WeightType::kQ4_K};

// Memory of a QuantRows; every byte is 0x7B before it is written.
class QuantStore {
 public:
  QuantStore(int64_t rows, int64_t cols)
      : codes_(static_cast<size_t>((rows + 7) / 8 * 8 * cols * 2), 0x7B),
        floats_(codes_.size() / 64 * 2, 1e30f),
        sums_(codes_.size() / 64, 0x7B7B7B7B),
        fine_(codes_.size() / 512, 0x7B) {}
  QuantRows rows() {
    return {codes_.data(), floats_.data(), floats_.data() + sums_.size(), sums_.data(),
            fine_.data()};
  }
  bool SameBits(const QuantStore& other) const {
    return codes_ == other.codes_ && sums_ == other.sums_ && fine_ == other.fine_ &&
           std::memcmp(floats_.data(), other.floats_.data(), floats_.size() * 4) == 0;
  }

 private:
  std::vector<int8_t> codes_;
  std::vector<float> floats_;
  std::vector<int32_t> sums_;
  std::vector<uint8_t> fine_;
};

// Codes of x, [rows, cols].
inline void QuantiseInto(const CpuOps& ops, std::span<const float> x, int64_t cols,
                         float coarse, QuantStore& store) {
  ops.quantise_rows({.x = x.data(),
                     .x_stride = cols,
                     .rows = static_cast<int64_t>(x.size()) / cols,
                     .cols = cols,
                     .coarse = coarse,
                     .out = store.rows()});
}

// Code of (row, k), found by the drawing in kernels/ops.h.
inline int CodeAt(const QuantRows& x, int64_t cols, int64_t row, int64_t k) {
  const int64_t block = row / 8 * (cols / 32) + k / 32;
  const int8_t* high = x.codes + block * 512 + k % 32 / 4 * 32 + row % 8 * 4 + k % 4;
  return high[0] * 256 + high[256];
}
inline int64_t ScaleAt(int64_t cols, int64_t row, int64_t k) {
  return (row / 8 * (cols / 32) + k / 32) * 8 + row % 8;
}

}  // namespace renga
