// Weights from the file's rows of blocks to panels of 32 rows, and back row by row for
// the embedding. Runs at load (PackPanels) or once per token (UnpackRow): plain code, the
// same for every instruction set.

#include <string.h>

#include "kernels/cpu/cpu_ops.h"

namespace renga {

namespace {

float LoadF16(const uint8_t* data) {
  uint16_t half;
  memcpy(&half, data, 2);
  return F16ToF32(half);
}

// Codes 0..15 of one block of 32 k of one panel row: element k at codes(k).
template <class Codes>
void PackNibbles(const Codes& codes, int64_t lane, uint8_t* out) {
  const int64_t r = lane % 16;
  const int shift = lane < 16 ? 0 : 4;
  for (int64_t k = 0; k < kBlockValues; ++k) {
    uint8_t* target = out + (k / 4) * 64 + r * 4 + k % 4;
    *target = static_cast<uint8_t>(*target | (codes(k) << shift));
  }
}

// Element k of the 16 bytes of a Q4_0 or Q4_1 block.
int Nibble(const uint8_t* bytes, int64_t k) {
  return k < 16 ? bytes[k] & 15 : bytes[k - 16] >> 4;
}

void PackQ4_0(const uint8_t* block, int64_t lane, uint8_t* out) {
  PackNibbles([block](int64_t k) { return Nibble(block + 2, k); }, lane, out);
  const uint16_t m = F32ToF16(-8.0f * LoadF16(block));
  memcpy(out + 512 + lane * 2, block, 2);
  memcpy(out + 576 + lane * 2, &m, 2);
}

void PackQ4_1(const uint8_t* block, int64_t lane, uint8_t* out) {
  PackNibbles([block](int64_t k) { return Nibble(block + 4, k); }, lane, out);
  memcpy(out + 512 + lane * 2, block, 2);
  memcpy(out + 576 + lane * 2, block + 2, 2);
}

// One super block of 256 k.
void PackQ4K(const uint8_t* super, int64_t lane, uint8_t* out) {
  memcpy(out + lane * 2, super, 2);
  memcpy(out + 64 + lane * 2, super + 2, 2);
  for (int64_t j = 0; j < kSuperBlocks; ++j) {
    const uint8_t* nibbles = super + 16 + j / 2 * 32;
    const int shift = j % 2 == 0 ? 0 : 4;
    uint8_t* block = out + kQ4KPanelHeaderBytes + j * kQ4KPanelBlockBytes;
    PackNibbles([=](int64_t k) { return nibbles[k] >> shift & 15; }, lane, block);
    Q4KScale(super + 4, j, block + 512 + lane, block + 544 + lane);
  }
}

void PackQ8_0(const uint8_t* block, int64_t lane, uint8_t* out) {
  for (int64_t k = 0; k < kBlockValues; ++k) {
    out[(k / 4) * 128 + (lane / 16) * 64 + (lane % 16) * 4 + k % 4] = block[2 + k] ^ 0x80;
  }
  memcpy(out + 1024 + lane * 2, block, 2);
}

void PackRow(WeightType type, const uint8_t* row, int64_t lane, int64_t cols,
             uint8_t* panel) {
  const int64_t blocks = cols / kBlockValues;
  switch (type) {
    case WeightType::kF32:
      for (int64_t k = 0; k < cols; ++k) {
        memcpy(panel + (k * kPanelRows + lane) * 4, row + k * 4, 4);
      }
      return;
    case WeightType::kBf16:
      for (int64_t k = 0; k < cols; ++k) {
        uint16_t upper;
        memcpy(&upper, row + k * 2, 2);
        const uint32_t value = static_cast<uint32_t>(upper) << 16;
        memcpy(panel + (k * kPanelRows + lane) * 4, &value, 4);
      }
      return;
    case WeightType::kF16:
      for (int64_t k = 0; k < cols; ++k) {
        memcpy(panel + (k * kPanelRows + lane) * 2, row + k * 2, 2);
      }
      return;
    case WeightType::kQ8_0:
      for (int64_t b = 0; b < blocks; ++b) {
        PackQ8_0(row + b * kQ8_0BlockBytes, lane, panel + b * kQ8_0PanelBlockBytes);
      }
      return;
    case WeightType::kQ4_1:
      for (int64_t b = 0; b < blocks; ++b) {
        PackQ4_1(row + b * kQ4_1BlockBytes, lane, panel + b * kQ4_1PanelBlockBytes);
      }
      return;
    case WeightType::kQ4_0:
      for (int64_t b = 0; b < blocks; ++b) {
        PackQ4_0(row + b * kQ4_0BlockBytes, lane, panel + b * kQ4_1PanelBlockBytes);
      }
      return;
    case WeightType::kQ4_K:
      for (int64_t b = 0; b < cols / kSuperValues; ++b) {
        PackQ4K(row + b * kQ4KSuperBytes, lane, panel + b * kQ4KPanelSuperBytes);
      }
      return;
  }
}

// One block of 32 k whose codes count in steps of `d` from `m`.
void UnpackNibbles(const uint8_t* block, int64_t lane, float d, float m, float* out) {
  const int shift = lane < 16 ? 0 : 4;
  for (int64_t k = 0; k < kBlockValues; ++k) {
    const int q = (block[(k / 4) * 64 + (lane % 16) * 4 + k % 4] >> shift) & 15;
    out[k] = __builtin_fmaf(static_cast<float>(q), d, m);
  }
}

void UnpackQ4_1(const uint8_t* block, int64_t lane, float* out) {
  const float d = LoadF16(block + 512 + lane * 2);
  const float m = LoadF16(block + 576 + lane * 2);
  UnpackNibbles(block, lane, d, m, out);
}

void UnpackQ4K(const uint8_t* super, int64_t lane, float* out) {
  const float d = LoadF16(super + lane * 2);
  const float dmin = LoadF16(super + 64 + lane * 2);
  for (int64_t j = 0; j < kSuperBlocks; ++j) {
    const uint8_t* block = super + kQ4KPanelHeaderBytes + j * kQ4KPanelBlockBytes;
    UnpackNibbles(block, lane, d * static_cast<float>(block[512 + lane]),
                  -(dmin * static_cast<float>(block[544 + lane])),
                  out + j * kBlockValues);
  }
}

void UnpackQ8_0(const uint8_t* block, int64_t lane, float* out) {
  const float d = LoadF16(block + 1024 + lane * 2);
  for (int64_t k = 0; k < kBlockValues; ++k) {
    const uint8_t code =
        block[(k / 4) * 128 + (lane / 16) * 64 + (lane % 16) * 4 + k % 4];
    out[k] = static_cast<float>(static_cast<int>(code) - 128) * d;
  }
}

}  // namespace

bool FitsPanels(WeightType type, const uint8_t* data, int64_t rows, int64_t cols) {
  if (type != WeightType::kQ4_0) return true;
  const int64_t blocks = rows * (cols / kBlockValues);
  for (int64_t b = 0; b < blocks; ++b) {
    const float d = LoadF16(data + b * kQ4_0BlockBytes);
    const float magnitude = d < 0.0f ? -d : d;
    if (magnitude >= 8192.0f && magnitude <= 65504.0f) return false;
  }
  return true;
}

void PackPanels(WeightType type, const uint8_t* data, int64_t rows, int64_t cols,
                uint8_t* panels) {
  const int64_t row_bytes = FileRowBytes(type, cols);
  const int64_t panel_bytes = PanelBytes(type, cols);
  for (int64_t first = 0; first < rows; first += kPanelRows) {
    uint8_t* panel = panels + first / kPanelRows * panel_bytes;
    memset(panel, 0, static_cast<size_t>(panel_bytes));
    const int64_t lanes = rows - first < kPanelRows ? rows - first : kPanelRows;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      PackRow(type, data + (first + lane) * row_bytes, lane, cols, panel);
    }
  }
}

void UnpackRow(WeightType type, const uint8_t* panels, int64_t row, int64_t cols,
               float* out) {
  const uint8_t* panel = panels + row / kPanelRows * PanelBytes(type, cols);
  const int64_t lane = row % kPanelRows;
  const int64_t blocks = cols / kBlockValues;
  switch (type) {
    case WeightType::kBf16:  // Its panels are those of F32.
    case WeightType::kF32:
      for (int64_t k = 0; k < cols; ++k) {
        memcpy(out + k, panel + (k * kPanelRows + lane) * 4, 4);
      }
      return;
    case WeightType::kF16:
      for (int64_t k = 0; k < cols; ++k) {
        out[k] = LoadF16(panel + (k * kPanelRows + lane) * 2);
      }
      return;
    case WeightType::kQ8_0:
      for (int64_t b = 0; b < blocks; ++b) {
        UnpackQ8_0(panel + b * kQ8_0PanelBlockBytes, lane, out + b * kBlockValues);
      }
      return;
    case WeightType::kQ4_0:
    case WeightType::kQ4_1:
      for (int64_t b = 0; b < blocks; ++b) {
        UnpackQ4_1(panel + b * kQ4_1PanelBlockBytes, lane, out + b * kBlockValues);
      }
      return;
    case WeightType::kQ4_K:
      for (int64_t b = 0; b < cols / kSuperValues; ++b) {
        UnpackQ4K(panel + b * kQ4KPanelSuperBytes, lane, out + b * kSuperValues);
      }
      return;
  }
}

}  // namespace renga
