// Block layouts of quantised weights as model files hold them, the packed panels that the
// kernels read, and f16 <-> f32 conversion.
//
// File blocks (32 values along a row, little endian):
//
//   Q4_0, 18 bytes   | f16 d | 16 bytes of nibbles |
//                      value = d * (q - 8),  q in [0, 15]
//   Q4_1, 20 bytes   | f16 d | f16 m | 16 bytes of nibbles |
//                      byte i: low nibble = element i, high nibble = element i + 16
//                      value = d * q + m,  q in [0, 15]
//   Q8_0, 34 bytes   | f16 d | 32 x int8 |
//                      value = d * q
//   Q4_K, 144 bytes  | f16 d | f16 dmin | 12 bytes | 4 x 32 bytes of nibbles |
//                      256 values: 8 blocks of 32, each with a scale and a min of 6 bits
//                      block 2 i: low nibbles of the i-th 32 bytes, block 2 i + 1: high
//                      value = (d * scale) * q - (dmin * min),  q in [0, 15]
//                      bytes p of the 12: block j < 4: scale = p[j] & 63, min = p[j + 4]
//                      & 63; block j >= 4: scale = p[j + 4] & 15 | (p[j - 4] >> 6) << 4,
//                      min = p[j + 4] >> 4 | (p[j] >> 6) << 4
//
// Packed panels (32 rows each; the rows after the last one are zero), one layout for all
// instruction sets, streamed front to back:
//
//   Q4_1  per block of 32 k, 640 bytes:
//         8 x 64 B nibbles | 32 x f16 d | 32 x f16 m
//         vector j, byte 4 r + i (r 0..15, i 0..3): low nibble = q[row r][k = 4 j + i],
//         high nibble = q[row 16 + r][k = 4 j + i]
//   Q4_0  as Q4_1, with m = -8 d (exact, or refused: FitsPanel)
//   Q4_K  per 256 k, 4736 bytes:
//         32 x f16 d | 32 x f16 dmin | 8 blocks of 32 k, 576 bytes each:
//         8 x 64 B nibbles, as Q4_1 | 32 x u8 scale | 32 x u8 min
//   Q8_0  per block of 32 k, 1088 bytes:
//         8 x 2 x 64 B codes | 32 x f16 d
//         vector (j, half), byte 4 r + i: q[row 16 half + r][k = 4 j + i] XOR 0x80
//   F16   per k: 32 x f16
//   F32   per k: 32 x f32
//   BF16  as F32: the upper half of a float is that float
//
// Everything here is `static inline`: the files of each instruction set are compiled with
// their own flags and must not share inline code with the others.

#pragma once

#include <stddef.h>
#include <stdint.h>

namespace renga {

enum class WeightType : uint8_t { kF32, kF16, kQ8_0, kQ4_1, kQ4_0, kQ4_K, kBf16 };

constexpr int64_t kBlockValues = 32;  // Values of one block.
constexpr int64_t kPanelRows = 32;    // Weight rows of one panel.
constexpr int64_t kTileRows = 8;      // Activation rows of one tile.
constexpr int64_t kCodePlanes = 2;    // int8 planes of an activation's code.
// Bytes of the codes of one block of one tile.
constexpr int64_t kTileBlockCodes = kCodePlanes * kBlockValues * kTileRows;
constexpr float kLargestCode = 32512.0f;  // 127 * 256.
constexpr float kLargestPlane = 127.0f;

constexpr int64_t kSuperValues = 256;  // Values of one Q4_K block of the file.
constexpr int64_t kSuperBlocks = kSuperValues / kBlockValues;

constexpr int64_t kQ4_0BlockBytes = 18;
constexpr int64_t kQ4_1BlockBytes = 20;
constexpr int64_t kQ8_0BlockBytes = 34;
constexpr int64_t kQ4KSuperBytes = 144;
constexpr int64_t kQ4_1PanelBlockBytes = 8 * 64 + 2 * 64;
constexpr int64_t kQ8_0PanelBlockBytes = 16 * 64 + 64;
constexpr int64_t kQ4KPanelHeaderBytes = 2 * 64;
constexpr int64_t kQ4KPanelBlockBytes = 8 * 64 + 2 * 32;
constexpr int64_t kQ4KPanelSuperBytes =
    kQ4KPanelHeaderBytes + kSuperBlocks * kQ4KPanelBlockBytes;

static inline bool IsQuantised(WeightType type) {
  return type != WeightType::kF32 && type != WeightType::kF16 &&
         type != WeightType::kBf16;
}

// Values of one block of the file: rows are whole blocks.
static inline int64_t FileBlockValues(WeightType type) {
  if (type == WeightType::kQ4_K) return kSuperValues;
  return IsQuantised(type) ? kBlockValues : 1;
}

// The type whose panels hold weights of this type, and whose product reads them.
static inline WeightType PanelTypeOf(WeightType type) {
  if (type == WeightType::kBf16) return WeightType::kF32;
  return type == WeightType::kQ4_0 ? WeightType::kQ4_1 : type;
}

// Scale and min of block `j` of a Q4_K super block, from its 12 bytes.
static inline void Q4KScale(const uint8_t* packed, int64_t j, uint8_t* scale,
                            uint8_t* min) {
  if (j < 4) {
    *scale = packed[j] & 63;
    *min = packed[j + 4] & 63;
    return;
  }
  *scale = static_cast<uint8_t>((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4);
  *min = static_cast<uint8_t>((packed[j + 4] >> 4) | (packed[j] >> 6) << 4);
}

// Bytes of one row in the file. REQUIRES: cols % FileBlockValues(type) == 0.
static inline int64_t FileRowBytes(WeightType type, int64_t cols) {
  switch (type) {
    case WeightType::kF32:
      return cols * 4;
    case WeightType::kF16:
    case WeightType::kBf16:
      return cols * 2;
    case WeightType::kQ8_0:
      return cols / kBlockValues * kQ8_0BlockBytes;
    case WeightType::kQ4_1:
      return cols / kBlockValues * kQ4_1BlockBytes;
    case WeightType::kQ4_0:
      return cols / kBlockValues * kQ4_0BlockBytes;
    case WeightType::kQ4_K:
      return cols / kSuperValues * kQ4KSuperBytes;
  }
  return 0;
}

// Bytes of one packed panel: a multiple of 64.
static inline int64_t PanelBytes(WeightType type, int64_t cols) {
  switch (type) {
    case WeightType::kF32:
    case WeightType::kBf16:
      return cols * kPanelRows * 4;
    case WeightType::kF16:
      return cols * kPanelRows * 2;
    case WeightType::kQ8_0:
      return cols / kBlockValues * kQ8_0PanelBlockBytes;
    case WeightType::kQ4_0:
    case WeightType::kQ4_1:
      return cols / kBlockValues * kQ4_1PanelBlockBytes;
    case WeightType::kQ4_K:
      return cols / kSuperValues * kQ4KPanelSuperBytes;
  }
  return 0;
}

// Where block `block` of 32 k begins in a Q4_K panel, and the halves of its super block.
static inline int64_t Q4KBlockOffset(int64_t block) {
  return block / kSuperBlocks * kQ4KPanelSuperBytes + kQ4KPanelHeaderBytes +
         block % kSuperBlocks * kQ4KPanelBlockBytes;
}
static inline int64_t Q4KSuperOffset(int64_t block) {
  return block / kSuperBlocks * kQ4KPanelSuperBytes;
}

static inline uint32_t FloatBits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}

static inline float BitsFloat(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// Same bits as VCVTPH2PS: exact; a signalling NaN becomes quiet.
static inline float F16ToF32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) {
    const uint32_t quiet = mantissa != 0 ? 0x00400000u : 0u;
    return BitsFloat(sign | 0x7F800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0) return BitsFloat(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Zero or subnormal: mantissa * 2^-24, exact in f32.
  const float magnitude = static_cast<float>(mantissa) * (1.0f / 16777216.0f);
  return BitsFloat(sign | FloatBits(magnitude));
}

// Same bits as VCVTPS2PH, rounding to nearest even.
static inline uint16_t F32ToF16(float value) {
  const uint32_t bits = FloatBits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {  // NaN: quiet, upper payload kept.
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // >= 65520
  if (magnitude < 0x38800000u) {
    // Subnormal result: adding 0.5 leaves round(|value| * 2^24) in the low mantissa bits.
    const uint32_t rounded = FloatBits(BitsFloat(magnitude) + 0.5f) - 0x3F000000u;
    return static_cast<uint16_t>(sign | rounded);
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

}  // namespace renga
