// What the dots of int8 KV pages take: one page, up to kDotQueries queries. Each
// instruction set has its own DotCodes and DotStepsFor, in
// int8_dots_<isa>-inl.h.

#pragma once

#include <stdint.h>

#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

struct DotCodes;

// scores[n][t] = fma(float(dot of the codes of query n and key t), s[n], base[n])
struct KeyDots {
  const uint8_t* page;    // Both nibble planes.
  const uint8_t* next;    // The same to prefetch, or nullptr.
  const DotCodes* codes;  // [queries]
  const float* s;         // [queries]
  const float* base;      // [queries]
  float (*scores)[kChunkPositions];
  int64_t hd;
};

// o[n][c] = float(dot of the codes of p of query n and the values of channel c) * z[n]
struct ValueDots {
  const uint8_t* values;
  const uint8_t* next;    // The same to prefetch, or nullptr.
  const DotCodes* codes;  // [queries]
  const float* z;         // [queries]
  float (*o)[kMaxHeadDim];
  int64_t hd;
};

// Both for one number of queries.
struct DotSteps {
  void (*scores)(const KeyDots&);
  void (*values)(const ValueDots&);
};

}  // namespace RENGA_ISA
}  // namespace renga
