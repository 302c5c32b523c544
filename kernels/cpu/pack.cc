// Weights from the file's rows of blocks to panels of 32 rows, and back row by row for
// the embedding. Runs at load (PackPanels) or once per token (UnpackRow): plain code, the
// same for every instruction set.

#include <string.h>

#include "kernels/cpu/cpu_ops.h"

namespace renga {

namespace {

uint8_t Nibble(const uint8_t* block, int64_t k) {
  const uint8_t byte = block[4 + k % 16];
  return k < 16 ? byte & 15 : byte >> 4;
}

// One block of 32 k of one panel row.
void PackQ4_1(const uint8_t* block, int64_t lane, uint8_t* out) {
  const int64_t r = lane % 16;
  const int shift = lane < 16 ? 0 : 4;
  for (int64_t k = 0; k < kBlockValues; ++k) {
    uint8_t* target = out + (k / 4) * 64 + r * 4 + k % 4;
    *target = static_cast<uint8_t>(*target | (Nibble(block, k) << shift));
  }
  memcpy(out + 512 + lane * 2, block, 2);
  memcpy(out + 576 + lane * 2, block + 2, 2);
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
  }
}

float LoadF16(const uint8_t* data) {
  uint16_t half;
  memcpy(&half, data, 2);
  return F16ToF32(half);
}

void UnpackQ4_1(const uint8_t* block, int64_t lane, float* out) {
  const float d = LoadF16(block + 512 + lane * 2);
  const float m = LoadF16(block + 576 + lane * 2);
  const int shift = lane < 16 ? 0 : 4;
  for (int64_t k = 0; k < kBlockValues; ++k) {
    const int q = (block[(k / 4) * 64 + (lane % 16) * 4 + k % 4] >> shift) & 15;
    out[k] = __builtin_fmaf(static_cast<float>(q), d, m);
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
    case WeightType::kQ4_1:
      for (int64_t b = 0; b < blocks; ++b) {
        UnpackQ4_1(panel + b * kQ4_1PanelBlockBytes, lane, out + b * kBlockValues);
      }
      return;
  }
}

}  // namespace renga
