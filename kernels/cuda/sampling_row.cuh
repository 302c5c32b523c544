// Parts of the draw in sampling.cuh: passes over a row of logits, weights, and the search
// for a border in amounts that were added up by bins.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"
#include "kernels/cuda/sampling_shape.h"
#include "kernels/cuda/words.h"

namespace renga::cuda {

// ---- Numbers -----------------------------------------------------------------------

// Integers in the order of the floats; -0 as 0.
RENGA_DEVICE uint32_t OrderOf(float x) {
  const uint32_t bits = FloatAsBits(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
RENGA_DEVICE float FloatOfOrder(uint32_t order) {
  return BitsAsFloat((order & 0x80000000u) != 0 ? order & 0x7FFFFFFFu : ~order);
}

// A row of logits whose largest is known, and the temperature.
struct LogitRow {
  const float* x;  // [vocab]
  int64_t vocab;
  float max;
  float scale;  // log2(e) / temperature

  // Not positive; 0 for the best.
  RENGA_DEVICE float HeightOf(float logit) const { return (logit - max) * scale; }
};

// round(2^30 exp2(height)) with the bits of CpuOps::sample_weights: the polynomial of
// kernels/cpu/exp2-inl.h, without fma. Its clamp to -127 works on the bits: a height is
// not positive.
RENGA_DEVICE uint32_t WeightOf(float height) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer.
  const uint32_t magnitude = FloatAsBits(height) & 0x7FFFFFFFu;
  const uint32_t limited = magnitude < 0x42FE0000u ? magnitude : 0x42FE0000u;
  const float x = BitsAsFloat(limited | 0x80000000u);
  const float shifted = x + kMagic;
  const float f = x - (shifted - kMagic);
  float p = 0.000153458122f;
  p = p * f + 0.00133999312f;
  p = p * f + 0.00961848896f;
  p = p * f + 0.0555032878f;
  p = p * f + 0.240226469f;
  p = p * f + 0.693147206f;
  p = p * f + 1.0f;
  const float e = p * BitsAsFloat((FloatAsBits(shifted) + 127u) << 23);
  return static_cast<uint32_t>(static_cast<int32_t>(e * 1073741824.0f + 0.5f));
}

// The least mass that is at least `share` of `total`, and at least 1.
RENGA_DEVICE uint64_t WantedMass(float share, uint64_t total) {
  const double wanted = static_cast<double>(share) * static_cast<double>(total);
  if (!(wanted > 1.0)) return 1;
  const uint64_t whole = static_cast<uint64_t>(wanted);
  return whole + (static_cast<double>(whole) < wanted ? 1 : 0);
}

// 64 uniform bits: two words of Philox4x32-10 (Salmon et al., SC 2011).
RENGA_DEVICE uint64_t RandomBits(uint64_t seed, uint32_t choice, uint32_t token_index) {
  uint32_t word[4] = {choice, token_index, 0, 0};
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  RENGA_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * word[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * word[2];
    word[0] = static_cast<uint32_t>(b >> 32) ^ word[1] ^ key0;
    word[1] = static_cast<uint32_t>(b);
    word[2] = static_cast<uint32_t>(a >> 32) ^ word[3] ^ key1;
    word[3] = static_cast<uint32_t>(a);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return uint64_t{word[0]} << 32 | word[1];
}

// ---- Warps -------------------------------------------------------------------------

template <class Ctx>
RENGA_DEVICE uint64_t Shuffle64(Ctx& ctx, uint64_t value, int lane) {
  const uint32_t low = ctx.Shuffle(static_cast<uint32_t>(value), lane);
  const uint32_t high = ctx.Shuffle(static_cast<uint32_t>(value >> 32), lane);
  return uint64_t{high} << 32 | low;
}

template <class Ctx>
RENGA_DEVICE uint64_t WarpSum(Ctx& ctx, uint64_t value) {
  RENGA_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t low = ctx.ShuffleXor(static_cast<uint32_t>(value), mask);
    const uint32_t high = ctx.ShuffleXor(static_cast<uint32_t>(value >> 32), mask);
    value += uint64_t{high} << 32 | low;
  }
  return value;
}

// The sum over this lane and those below.
template <class Ctx>
RENGA_DEVICE uint64_t WarpPrefix(Ctx& ctx, uint64_t value) {
  RENGA_UNROLL
  for (int delta = 1; delta < kWarp; delta *= 2) {
    const uint32_t low = ctx.ShuffleUp(static_cast<uint32_t>(value), delta);
    const uint32_t high = ctx.ShuffleUp(static_cast<uint32_t>(value >> 32), delta);
    if (ctx.lane() >= delta) value += uint64_t{high} << 32 | low;
  }
  return value;
}

// ---- Passes over a row -------------------------------------------------------------

// Logits [at, at + 4); -inf behind the end. A row starts at 16 bytes if vocab % 4 == 0.
template <class Ctx>
RENGA_DEVICE void LoadLogits(Ctx& ctx, const LogitRow& row, int64_t at, float (&x)[4]) {
  if ((row.vocab & 3) == 0) {
    Vec16 bits = {{0xFF800000u, 0xFF800000u, 0xFF800000u, 0xFF800000u}};
    if (at < row.vocab) bits = ctx.Load16(row.x + at);
    RENGA_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = BitsAsFloat(bits.word[i]);
    return;
  }
  RENGA_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = at + i < row.vocab ? row.x[at + i] : kMinusInfinity;
}

// body(id, logit) for all of the row, and for -inf behind its end; ids of a thread rise.
// kLoads of 16 bytes are on their way at a time.
template <int kLoads, class Ctx, class Body>
RENGA_DEVICE void ForRow(Ctx& ctx, const LogitRow& row, const Body& body) {
  RENGA_NO_UNROLL
  for (int64_t first = ctx.thread() * 4; first < row.vocab;
       first += kLoads * kDrawThreads * 4) {
    float x[kLoads][4];
    RENGA_UNROLL
    for (int load = 0; load < kLoads; ++load) {
      LoadLogits(ctx, row, first + load * kDrawThreads * 4, x[load]);
    }
    RENGA_UNROLL
    for (int load = 0; load < kLoads; ++load) {
      RENGA_UNROLL
      for (int i = 0; i < 4; ++i) {
        body(static_cast<int32_t>(first + load * kDrawThreads * 4 + i), x[load][i]);
      }
    }
  }
}

// ---- Amounts by bins ---------------------------------------------------------------

// All bins 0. A barrier before it: the last search is over; one after it.
template <class Ctx>
RENGA_DEVICE void ClearAmounts(Ctx& ctx) {
  uint64_t* amounts = ctx.template Shared<uint64_t>(kDrawAmounts);
  ctx.Barrier();
  RENGA_UNROLL
  for (int i = 0; i < kDrawBins / kDrawThreads; ++i) {
    amounts[i * kDrawThreads + ctx.thread()] = 0;
  }
  ctx.Barrier();
}

template <class Ctx>
RENGA_DEVICE void AddAmount(Ctx& ctx, int bin, uint64_t amount) {
  ctx.AtomicAdd(ctx.template Shared<uint64_t>(kDrawAmounts) + bin, amount);
}

// Sum of all bins; leaves those of each warp's share for FindBin.
template <class Ctx>
RENGA_DEVICE uint64_t SumAmounts(Ctx& ctx) {
  constexpr int kBins = kDrawBins / kDrawWarps;  // Of a warp.
  const uint64_t* amounts = ctx.template Shared<uint64_t>(kDrawAmounts);
  uint64_t* groups = ctx.template Shared<uint64_t>(kDrawGroups);
  ctx.Barrier();
  uint64_t sum = 0;
  RENGA_UNROLL
  for (int i = 0; i < kBins; i += kWarp) {
    sum += amounts[ctx.warp() * kBins + i + ctx.lane()];
  }
  sum = WarpSum(ctx, sum);
  if (ctx.lane() == 0) groups[ctx.warp()] = sum;
  ctx.Barrier();
  uint64_t total = 0;
  RENGA_NO_UNROLL
  for (int i = 0; i < kDrawWarps; ++i) total += groups[i];
  return total;
}

struct FoundBin {
  int32_t bin;
  uint64_t before;  // Sum of the bins before it.
  uint64_t inside;
};

// The first bin at which the sum reaches `wanted`, for all threads alike.
// REQUIRES: SumAmounts; 1 <= wanted <= their sum.
template <class Ctx>
RENGA_DEVICE FoundBin FindBin(Ctx& ctx, uint64_t wanted) {
  constexpr int kBins = kDrawBins / kDrawWarps;
  const uint64_t* amounts = ctx.template Shared<uint64_t>(kDrawAmounts);
  const uint64_t* groups = ctx.template Shared<uint64_t>(kDrawGroups);
  uint64_t before = 0;
  int group = 0;
  while (group + 1 < kDrawWarps && before + groups[group] < wanted) {
    before += groups[group++];
  }
  FoundBin found = {0, before, 0};
  RENGA_NO_UNROLL
  for (int i = 0; i < kBins; i += kWarp) {
    const int bin = group * kBins + i;
    const uint64_t amount = amounts[bin + ctx.lane()];
    const uint64_t sum = before + WarpPrefix(ctx, amount);
    const uint32_t reached = ctx.Ballot(sum >= wanted);
    if (reached != 0) {
      const int lane = LowestBit(reached);
      found.bin = bin + lane;
      found.inside = Shuffle64(ctx, amount, lane);
      found.before = Shuffle64(ctx, sum, lane) - found.inside;
      return found;
    }
    before = Shuffle64(ctx, sum, kWarp - 1);
  }
  return found;
}

}  // namespace renga::cuda
