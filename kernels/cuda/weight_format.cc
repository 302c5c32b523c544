// Weights from a file's rows of blocks to tiles of runs (weight_format.h). Runs once, at
// load; plain code.

#include "kernels/cuda/weight_format.h"

#include <math.h>
#include <string.h>

namespace renga::cuda {

namespace {

constexpr float kLargestHalf = 65504.0f;

uint16_t LoadU16(const uint8_t* data) {
  uint16_t value;
  memcpy(&value, data, 2);
  return value;
}
float LoadHalf(const uint8_t* data) { return F16ToF32(LoadU16(data)); }
void StoreU16(uint8_t* data, uint16_t value) { memcpy(data, &value, 2); }

// Also false for NaN.
bool FitsHalf(float value) { return fabsf(value) <= kLargestHalf; }

// Where the codes of a row are in a run, less those of k = 0: the same for all rows.
struct CodeOffsets {
  uint16_t of[kDeviceWeightTypes][kRunCols] = {};
};
constexpr CodeOffsets MakeCodeOffsets() {
  CodeOffsets offsets;
  for (int type = 0; type < kDeviceWeightTypes; ++type) {
    for (int32_t k = 0; k < kRunCols; ++k) {
      offsets.of[type][k] = static_cast<uint16_t>(
          CodeOffset(static_cast<DeviceWeightType>(type), PlaceOf(0, k)));
    }
  }
  return offsets;
}
constexpr CodeOffsets kCodeOffsets = MakeCodeOffsets();

// One row of a tile that is being filled.
struct RowTarget {
  DeviceWeightType type{};
  uint8_t* tile = nullptr;
  int32_t row = 0;  // In the tile.

  uint8_t* Run(int32_t run) const { return tile + RunOffset(type, run); }
  // The row's codes in run `run`: that of k at [Offsets()[k]].
  uint8_t* Codes(int32_t run) const {
    return Run(run) + ScaleBytes(type) + CodeOffset(type, PlaceOf(row, 0));
  }
  const uint16_t* Offsets() const { return kCodeOffsets.of[static_cast<int>(type)]; }
  // The scales of block `block` of 32 k, whose two blocks of a run take `bytes` each.
  uint8_t* Scales(int32_t block, int32_t bytes) const {
    return Run(block / 2) + (row % 8 * 4 + row / 8 * 2 + block % 2) * bytes;
  }
};

// Codes 0..15 of block `block`: element k at codes(k).
template <class Codes>
void PackNibbles(const RowTarget& to, int32_t block, const Codes& codes) {
  uint8_t* target = to.Codes(block / 2);
  const uint16_t* offsets = to.Offsets() + block % 2 * kBlockValues;
  const int shift = to.row / 8 * 4;
  for (int32_t k = 0; k < kBlockValues; ++k) {
    uint8_t* code = target + offsets[k];
    *code = static_cast<uint8_t>(*code | codes(k) << shift);
  }
}

// Element k of the 16 bytes of a Q4_0 or Q4_1 block.
int Nibble(const uint8_t* bytes, int32_t k) {
  return k < 16 ? bytes[k] & 15 : bytes[k - 16] >> 4;
}

bool PackQ4(const RowTarget& to, int32_t block, const uint8_t* nibbles, uint16_t d,
            uint16_t m) {
  PackNibbles(to, block, [nibbles](int32_t k) { return Nibble(nibbles, k); });
  uint8_t* scales = to.Scales(block, 4);
  StoreU16(scales, d);
  StoreU16(scales + 2, m);
  return FitsHalf(15.0f * F16ToF32(d) + F16ToF32(m));  // m itself is a half.
}

bool PackQ4_0Block(const RowTarget& to, int32_t block, const uint8_t* from) {
  return PackQ4(to, block, from + 2, LoadU16(from), F32ToF16(-8.0f * LoadHalf(from)));
}

bool PackQ4_1Block(const RowTarget& to, int32_t block, const uint8_t* from) {
  return PackQ4(to, block, from + 4, LoadU16(from), LoadU16(from + 2));
}

bool PackQ8_0Block(const RowTarget& to, int32_t block, const uint8_t* from) {
  StoreU16(to.Scales(block, 2), LoadU16(from));
  uint8_t* target = to.Codes(block / 2);
  const uint16_t* offsets = to.Offsets() + block % 2 * kBlockValues;
  for (int32_t k = 0; k < kBlockValues; ++k) target[offsets[k]] = from[2 + k] ^ 0x80;
  return FitsHalf(128.0f * LoadHalf(from));
}

bool PackQ4KSuper(const RowTarget& to, int32_t super, const uint8_t* from) {
  memcpy(to.tile + Q4KHeadOffset(kQ4KSuperRuns * super) + to.row % 8 * 8 + to.row / 8 * 4,
         from, 4);
  const float d = LoadHalf(from);
  const float dmin = LoadHalf(from + 2);
  bool fits = true;
  for (int32_t j = 0; j < kSuperBlocks; ++j) {
    const int32_t block = static_cast<int32_t>(kSuperBlocks) * super + j;
    const uint8_t* nibbles = from + 16 + j / 2 * 32;
    const int shift = j % 2 * 4;
    PackNibbles(to, block, [=](int32_t k) { return nibbles[k] >> shift & 15; });
    uint8_t* scales = to.Scales(block, 2);
    Q4KScale(from + 4, j, scales, scales + 1);
    const float least = -(dmin * static_cast<float>(scales[1]));
    fits &=
        FitsHalf(least) && FitsHalf(d * static_cast<float>(scales[0]) * 15.0f + least);
  }
  return fits;
}

bool PackHalf(const RowTarget& to, int32_t col, uint16_t half) {
  StoreU16(to.Codes(col / kRunCols) + to.Offsets()[col % kRunCols], half);
  return FitsHalf(F16ToF32(half));
}

bool PackF32(const RowTarget& to, int32_t col, const uint8_t* from) {
  float value;
  memcpy(&value, from, 4);
  return PackHalf(to, col, F32ToF16(value));
}

// Below 2^-14 a half has fewer bits than a bf16: off by 2^-25 at most.
bool PackBf16(const RowTarget& to, int32_t col, const uint8_t* from) {
  return PackHalf(to, col,
                  F32ToF16(BitsFloat(static_cast<uint32_t>(LoadU16(from)) << 16)));
}

bool PackF16(const RowTarget& to, int32_t col, const uint8_t* from) {
  return PackHalf(to, col, LoadU16(from));
}

// One block of the file; `index` counts blocks (values for F32 and F16) of the row.
using PackBlock = bool (*)(const RowTarget& to, int32_t index, const uint8_t* from);

PackBlock PackBlockOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return PackF32;
    case WeightType::kF16:
      return PackF16;
    case WeightType::kBf16:
      return PackBf16;
    case WeightType::kQ8_0:
      return PackQ8_0Block;
    case WeightType::kQ4_1:
      return PackQ4_1Block;
    case WeightType::kQ4_0:
      return PackQ4_0Block;
    case WeightType::kQ4_K:
      return PackQ4KSuper;
  }
  return nullptr;
}

// A tile of zeros; the code of a zero is 128 in kQ8, so that it is no -0.
void ClearTile(DeviceWeightType type, int64_t cols, uint8_t* tile) {
  memset(tile, 0, static_cast<size_t>(TileBytes(type, cols)));
  if (type != DeviceWeightType::kQ8) return;
  for (int32_t run = 0; run < RunsOf(cols); ++run) {
    memset(tile + RunOffset(type, run) + ScaleBytes(type), 0x80, 1024);
  }
}

}  // namespace

DeviceWeightType DeviceTypeOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kBf16:
      return DeviceWeightType::kF16;
    case WeightType::kQ8_0:
      return DeviceWeightType::kQ8;
    case WeightType::kQ4_1:
    case WeightType::kQ4_0:
      return DeviceWeightType::kQ4;
    case WeightType::kQ4_K:
      return DeviceWeightType::kQ4K;
  }
  return DeviceWeightType::kF16;
}

int64_t DeviceWeightBytes(DeviceWeightType type, int64_t rows, int64_t cols) {
  const int64_t tiles = (rows + kWeightTileRows - 1) / kWeightTileRows;
  return (tiles * TileBytes(type, cols) + 255) / 256 * 256;
}

bool PackDeviceWeight(const PackArgs& args) {
  const DeviceWeightType type = DeviceTypeOf(args.type);
  const PackBlock pack = PackBlockOf(args.type);
  const int64_t row_bytes = FileRowBytes(args.type, args.cols);
  const auto blocks = static_cast<int32_t>(args.cols / FileBlockValues(args.type));
  const int64_t block_bytes = row_bytes / blocks;
  const int64_t tile_bytes = TileBytes(type, args.cols);
  bool fits = true;
  for (int64_t row = 0; row < args.rows; ++row) {
    const int64_t at = args.first_row + row;
    const RowTarget to{.type = type,
                       .tile = args.out + at / kWeightTileRows * tile_bytes,
                       .row = static_cast<int32_t>(at % kWeightTileRows)};
    if (to.row == 0) ClearTile(type, args.cols, to.tile);
    const uint8_t* from = args.file + row * row_bytes;
    for (int32_t i = 0; i < blocks; ++i) fits &= pack(to, i, from + i * block_bytes);
  }
  return fits;
}

}  // namespace renga::cuda
