// The shapes of the AMX tiles that products with quantised weights use, as LDTILECFG
// reads them.
//
//   codes    [16 rows][32 k]                 int8, one plane of a block
//   weights  [8 k4][16 weight rows][4 k]     uint8
//   dots     [16 rows][16 weight rows]       int32 += codes . weights

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/block_format.h"

namespace renga {
namespace RENGA_ISA {

constexpr int64_t kDotRows = 16;     // Of activations.
constexpr int64_t kDotOutputs = 16;  // Weight rows: half of a panel.

constexpr int kHighDots = 0;
constexpr int kLowDots = 1;
constexpr int kHighCodes = 2;
constexpr int kLowCodes = 3;
constexpr int kWeights = 4;

struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64, "what LDTILECFG reads");

constexpr TileConfig MakeTileConfig() {
  TileConfig config;
  const auto set = [&config](int tile, int64_t rows, int64_t row_bytes) {
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
  };
  set(kHighDots, kDotRows, kDotOutputs * 4);
  set(kLowDots, kDotRows, kDotOutputs * 4);
  set(kHighCodes, kDotRows, kBlockValues);
  set(kLowCodes, kDotRows, kBlockValues);
  set(kWeights, kBlockValues / 4, kDotOutputs * 4);
  return config;
}

alignas(64) constexpr TileConfig kTileConfig = MakeTileConfig();

}  // namespace RENGA_ISA
}  // namespace renga
