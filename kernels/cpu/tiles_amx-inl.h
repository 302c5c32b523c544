// AmxTiles: the tile registers of the CPU, from LDTILECFG to TILERELEASE.
//
// Thread rule: the registers are the thread's own, so there is at most one AmxTiles on a
// thread at a time. The process must have asked Linux for them (cpu_ops.cc); else the
// first instruction here ends it.
//
// Assembly in place of the compiler's intrinsics: these want the tile's number as a
// literal, and GCC 12's loads do not say that they read memory, so that what was written
// there just before may be written after them, or never.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/tile_config-inl.h"

namespace renga {
namespace RENGA_ISA {

class AmxTiles {
 public:
  explicit AmxTiles(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
  }
  ~AmxTiles() { __asm__ volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int kTile>
  void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }

  // Row r at p + r * stride; both in bytes.
  template <int kTile>
  void Load(const void* p, int64_t stride) {
    __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(p), "r"(stride)
                     : "memory");
  }
  template <int kTile>
  void Store(void* p, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(p), "r"(stride)
                     : "memory");
  }

  // dots[m][n] += sum over k4 and i of codes[m][4 k4 + i] * weights[k4][4 n + i].
  template <int kDots, int kCodes, int kUnsigned>
  void Multiply() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kDots), "i"(kCodes),
                     "i"(kUnsigned));
  }
};

}  // namespace RENGA_ISA
}  // namespace renga
