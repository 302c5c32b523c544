// The definition of attention over pages: plain loops, one query and one output at a
// time. The merge tree and its arithmetic are those of src/README.md; the int8 pages
// stand in attention_int8_portable-inl.h.

#pragma once

#include <stdint.h>

#include "kernels/cpu/exp2-inl.h"
#include "kernels/cpu/scalar-inl.h"
#include "kernels/ops.h"

namespace renga {
namespace RENGA_ISA {

struct F16 {
  static constexpr int64_t kBytes = 2;
  static float Load(const uint8_t* data) { return LoadF16(data); }
  static void Store(uint8_t* data, float value) {
    const uint16_t half = F32ToF16(value);
    __builtin_memcpy(data, &half, 2);
  }
};

struct F32 {
  static constexpr int64_t kBytes = 4;
  static float Load(const uint8_t* data) { return LoadF32(data); }
  static void Store(uint8_t* data, float value) { __builtin_memcpy(data, &value, 4); }
};

template <class Element>
static void KvAppend(const KvAppendArgs& args) {
  const int64_t hd = args.head_dim;
  uint8_t* k = args.page + (args.slot / 16 * hd * 16 + args.slot % 16) * Element::kBytes;
  uint8_t* v = args.page + (kChunkPositions + args.slot) * hd * Element::kBytes;
  for (int64_t i = 0; i < hd; ++i) {
    Element::Store(k + i * 16 * Element::kBytes, args.k[i]);
    Element::Store(v + i * Element::kBytes, args.v[i]);
  }
}

// The state (m, l, o) of one query over some of its positions.
struct Partial {
  float m;
  float l;
  float o[kMaxHeadDim];
};

// `into` = fold of `into` and `next`.
static void Fold(Partial& into, const Partial& next, int64_t hd) {
  const float m = into.m > next.m ? into.m : next.m;
  const float wa = Exp2(into.m - m);
  const float wb = Exp2(next.m - m);
  into.m = m;
  into.l = Fma(into.l, wa, next.l * wb);
  for (int64_t i = 0; i < hd; ++i) into.o[i] = Fma(into.o[i], wa, next.o[i] * wb);
}

// Scores of the first `seen` positions -> p, m, l.
static void Softmax(float* scores, int64_t seen, float& m, float& l) {
  m = scores[0];
  for (int64_t t = 1; t < seen; ++t) m = m > scores[t] ? m : scores[t];
  float sums[16] = {};
  for (int64_t t = 0; t < seen; ++t) {
    scores[t] = Exp2(scores[t] - m);
    sums[t % 16] = sums[t % 16] + scores[t];
  }
  l = FoldSum(sums);
}

// One chunk, of which the query sees the first `seen` positions (1..64).
template <class Element>
static void Chunk(const float* q, const uint8_t* page, int64_t hd, int64_t seen,
                  Partial& out) {
  float p[kChunkPositions];
  for (int64_t t = 0; t < seen; ++t) {
    const uint8_t* k = page + (t / 16 * hd * 16 + t % 16) * Element::kBytes;
    float score = 0.0f;
    for (int64_t i = 0; i < hd; ++i) {
      score = Fma(Element::Load(k + i * 16 * Element::kBytes), q[i], score);
    }
    p[t] = score;
  }
  Softmax(p, seen, out.m, out.l);
  for (int64_t i = 0; i < hd; ++i) out.o[i] = 0.0f;
  for (int64_t t = 0; t < seen; ++t) {
    const uint8_t* v = page + (kChunkPositions + t) * hd * Element::kBytes;
    for (int64_t i = 0; i < hd; ++i) {
      out.o[i] = Fma(p[t], Element::Load(v + i * Element::kBytes), out.o[i]);
    }
  }
}

// Chunk `chunk` for the query at `position`, which sees at least its first position.
// Int8 has its own.
template <class Element>
static void ReadChunk(const AttendArgs& args, const float* q, int64_t position,
                      int64_t chunk, Partial& out) {
  const int64_t visible = position + 1 - chunk * kChunkPositions;
  const uint8_t* page = args.pool + args.pages[chunk] * args.page_stride;
  Chunk<Element>(q, page, args.head_dim,
                 visible < kChunkPositions ? visible : kChunkPositions, out);
}

// One group of 4 chunks for the query at `position`, which sees at least its first.
template <class Element>
static void Group(const AttendArgs& args, const float* q, int64_t position, int64_t group,
                  Partial& out) {
  for (int64_t c = 0; c < kGroupChunks; ++c) {
    const int64_t chunk = group * kGroupChunks + c;
    if (position < chunk * kChunkPositions) return;
    Partial next;
    Partial& target = c == 0 ? out : next;
    ReadChunk<Element>(args, q, position, chunk, target);
    if (c > 0) Fold(out, next, args.head_dim);
  }
}

static void WriteOutput(const Partial& state, int64_t hd, float* out) {
  for (int64_t i = 0; i < hd; ++i) out[i] = state.o[i] / state.l;
}

template <class Element>
static void AttendQuery(const AttendArgs& args, int64_t row, int64_t head) {
  const int64_t hd = args.head_dim;
  const int64_t position = args.first_position + row;
  const int64_t needed = position / (kGroupChunks * kChunkPositions) + 1;
  const int64_t end =
      args.first_group + args.groups < needed ? args.first_group + args.groups : needed;
  const bool whole = args.first_group == 0 && end == needed;
  const float* q = args.q + row * args.q_stride + head * hd;
  Partial total;
  for (int64_t g = args.first_group; g < end; ++g) {
    Partial state;
    Partial& target = g == 0 && whole ? total : state;
    Group<Element>(args, q, position, g, target);
    if (!whole) {
      float* out = args.partials + args.partial_rows[row] * args.partial_row_stride +
                   head * args.partial_head_stride + g * (kPartialHeader + hd);
      out[0] = state.m;
      out[1] = state.l;
      for (int64_t i = 0; i < hd; ++i) out[2 + i] = state.o[i];
    } else if (g > 0) {
      Fold(total, state, hd);
    }
  }
  if (whole) WriteOutput(total, hd, args.out + row * args.out_stride + head * hd);
}

template <class Element>
static void Attend(const AttendArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t head = 0; head < args.heads; ++head) {
      AttendQuery<Element>(args, row, head);
    }
  }
}

static void MergePartials(const float* partials, int64_t count, int64_t head_dim,
                          float* out) {
  Partial total;
  for (int64_t g = 0; g < count; ++g) {
    Partial next;
    Partial& target = g == 0 ? total : next;
    target.m = partials[0];
    target.l = partials[1];
    for (int64_t i = 0; i < head_dim; ++i) target.o[i] = partials[2 + i];
    if (g > 0) Fold(total, next, head_dim);
    partials += kPartialHeader + head_dim;
  }
  WriteOutput(total, head_dim, out);
}

}  // namespace RENGA_ISA
}  // namespace renga
