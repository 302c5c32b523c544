// EmulatedTiles: the tile registers of an AMX CPU in plain C++, with the checks of the
// hardware: what would be a fault there calls IllegalTile here. Bounds of memory are for
// the address sanitizer.
//
// Thread rule: one thread at a time. Everything is in the namespace RENGA_ISA of the file
// that includes this, as that may be compiled for an instruction set of its own.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/tile_config-inl.h"

namespace renga {

// Says what is illegal and ends the program.
[[noreturn]] void IllegalTile(const char* what);

namespace RENGA_ISA {

class EmulatedTiles {
 public:
  explicit EmulatedTiles(const TileConfig& config) : config_(config) {
    Require(reinterpret_cast<uintptr_t>(&config) % 64 == 0, "config is not aligned");
    Require(config.palette == 1, "palette is not 1");
    Require(config.start_row == 0, "a load would start in the middle");
    for (const uint8_t byte : config.reserved) Require(byte == 0, "reserved byte is set");
    for (int tile = 0; tile < 16; ++tile) {
      const int rows = config.rows[tile];
      const int row_bytes = config.row_bytes[tile];
      Require(tile < kTiles || (rows == 0 && row_bytes == 0), "more than 8 tiles");
      Require(rows <= kMaxRows, "more than 16 rows");
      Require(row_bytes <= kMaxRowBytes, "more than 64 bytes a row");
      Require((rows == 0) == (row_bytes == 0), "a tile of no size");
    }
  }
  EmulatedTiles(const EmulatedTiles&) = delete;
  EmulatedTiles& operator=(const EmulatedTiles&) = delete;

  template <int kTile>
  void Zero() {
    RequireTile(kTile);
    __builtin_memset(data_[kTile], 0, sizeof data_[kTile]);
  }

  // The rest of the register becomes zero.
  template <int kTile>
  void Load(const void* p, int64_t stride) {
    Zero<kTile>();
    for (int row = 0; row < config_.rows[kTile]; ++row) {
      __builtin_memcpy(data_[kTile][row], static_cast<const uint8_t*>(p) + row * stride,
                       config_.row_bytes[kTile]);
    }
  }

  template <int kTile>
  void Store(void* p, int64_t stride) {
    RequireTile(kTile);
    for (int row = 0; row < config_.rows[kTile]; ++row) {
      __builtin_memcpy(static_cast<uint8_t*>(p) + row * stride, data_[kTile][row],
                       config_.row_bytes[kTile]);
    }
  }

  // TDPBSUD.
  template <int kDots, int kCodes, int kUnsigned>
  void Multiply() {
    RequireTile(kDots);
    RequireTile(kCodes);
    RequireTile(kUnsigned);
    Require(kDots != kCodes && kDots != kUnsigned && kCodes != kUnsigned,
            "a tile stands twice");
    const int m = config_.rows[kDots];
    const int n = config_.row_bytes[kDots] / 4;
    const int k4 = config_.rows[kUnsigned];
    const int used[] = {kDots, kCodes, kUnsigned};
    for (const int tile : used) {
      Require(config_.row_bytes[tile] % 4 == 0, "a row is not whole words");
    }
    Require(config_.rows[kCodes] == m, "rows of the codes differ from those of the dots");
    Require(config_.row_bytes[kUnsigned] == n * 4, "weight rows differ from the dots'");
    Require(config_.row_bytes[kCodes] == k4 * 4, "codes and weights differ in k");
    for (int row = 0; row < m; ++row) {
      for (int column = 0; column < n; ++column)
        AddDot<kDots, kCodes, kUnsigned>(row, column);
    }
  }

 private:
  static constexpr int kTiles = 8;
  static constexpr int kMaxRows = 16;
  static constexpr int kMaxRowBytes = 64;

  static void Require(bool legal, const char* what) {
    if (!legal) IllegalTile(what);
  }
  void RequireTile(int tile) const {
    Require(tile >= 0 && tile < kTiles && config_.rows[tile] != 0,
            "the tile is not configured");
  }

  template <int kDots, int kCodes, int kUnsigned>
  void AddDot(int row, int column) {
    int32_t dot;
    __builtin_memcpy(&dot, data_[kDots][row] + column * 4, 4);
    for (int k4 = 0; k4 < config_.rows[kUnsigned]; ++k4) {
      for (int i = 0; i < 4; ++i) {
        const int code = static_cast<int8_t>(data_[kCodes][row][k4 * 4 + i]);
        dot += code * data_[kUnsigned][k4][column * 4 + i];
      }
    }
    __builtin_memcpy(data_[kDots][row] + column * 4, &dot, 4);
  }

  const TileConfig config_;
  uint8_t data_[kTiles][kMaxRows][kMaxRowBytes] = {};
};

}  // namespace RENGA_ISA
}  // namespace renga
