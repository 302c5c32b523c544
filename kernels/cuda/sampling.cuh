// Body of the draw: one token from a row of logits. See sampling.h; the definition is
// kernels/sampling.h, and the token is the same.
//
// A block has one row and goes over it a few times (it stays in L2). Nothing is sorted:
// - one pass finds the largest logit. Greedy ends here; without top_k and top_p one more
//   pass adds up weights, and the draw is found in it.
// - else one pass counts and weighs what lies above each of five depths. The first depth
//   that holds enough is the bound of all that follows. If at most kDrawListed logits
//   lie there they are listed in shared memory, and the row is not read again.
// - top_k and top_p each look for the last logit that stays: amounts (counts or weights)
//   are added up in 1024 bins by depth, then the bin with the border is cut into 1024
//   bins by the bits of its logits, until it holds one value; of its ties the first by
//   id stay.
// All amounts are integers, so their sums do not depend on the order of threads.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/sampling_row.cuh"
#include "kernels/cuda/sampling_shape.h"
#include "kernels/cuda/words.h"

namespace renga::cuda {

// What is still in play: of the logits not deeper than `deepest` those above the cut.
struct DrawState {
  LogitRow row;
  float deepest;
  int32_t listed;      // Logits in shared memory; -1: they are read from the row.
  uint32_t cut_order;  // The last logit that stays (OrderOf) ...
  int32_t cut_id;      // ... and the last id that does with just this logit.
  uint32_t least;      // Weight.

  RENGA_DEVICE bool Holds(int32_t id, float logit) const {
    const uint32_t order = OrderOf(logit);
    return order > cut_order || (order == cut_order && id <= cut_id);
  }
};

constexpr int32_t kAnyId = 0x7FFFFFFF;

// body(id, logit) for what may be in play: more than is, never less.
template <class Ctx, class Body>
RENGA_DEVICE void ForCandidates(Ctx& ctx, const DrawState& state, const Body& body) {
  if (state.listed < 0) {
    ForRow<2>(ctx, state.row, body);
    return;
  }
  const float* logits = ctx.template Shared<float>(kDrawLogits);
  const int32_t* ids = ctx.template Shared<int32_t>(kDrawIds);
  RENGA_NO_UNROLL
  for (int i = ctx.thread(); i < state.listed; i += kDrawThreads) body(ids[i], logits[i]);
}

// ---- The largest -------------------------------------------------------------------

struct Best {
  bool usable;  // No NaN, no +inf, and one that is finite.
  float logit;
  int32_t id;  // The smallest one with this logit.
};

template <class Ctx>
RENGA_DEVICE Best FindBest(Ctx& ctx, const LogitRow& row) {
  uint32_t* words = ctx.template Shared<uint32_t>(kDrawWords);
  if (ctx.thread() < 3) words[ctx.thread()] = 0;
  ctx.Barrier();
  uint32_t order = 0;
  int32_t id = kAnyId;
  bool bad = false;
  ForRow<4>(ctx, row, [&](int32_t i, float logit) {
    bad |= !(logit < -kMinusInfinity);
    const uint32_t next = OrderOf(logit);
    id = next > order ? i : id;
    order = next > order ? next : order;
  });
  uint32_t largest = order;
  RENGA_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t other = ctx.ShuffleXor(largest, mask);
    largest = other > largest ? other : largest;
  }
  const bool any_bad = ctx.Ballot(bad) != 0;
  if (ctx.lane() == 0) {
    ctx.AtomicMax(words, largest);
    ctx.AtomicMax(words + 1, any_bad ? 1u : 0u);
  }
  ctx.Barrier();
  largest = words[0];
  if (order == largest) ctx.AtomicMax(words + 2, ~static_cast<uint32_t>(id));
  ctx.Barrier();
  const float logit = FloatOfOrder(largest);
  return {words[1] == 0 && logit > kMinusInfinity, logit,
          static_cast<int32_t>(~words[2])};
}

// ---- Where all that counts lies ----------------------------------------------------

// From depth 31 on a weight is 0; one more than that covers all rounding.
RENGA_DEVICE float DepthBound(int i) {
  return i == 0 ? 5.0f : i == 1 ? 9.0f : i == 2 ? 14.0f : i == 3 ? 20.0f : 32.0f;
}

// Puts what is not deeper than state.deepest into shared memory.
template <class Ctx>
RENGA_DEVICE void ListCandidates(Ctx& ctx, DrawState& state, int32_t count) {
  int32_t* used = ctx.template Shared<int32_t>(kDrawWords) + 3;
  float* logits = ctx.template Shared<float>(kDrawLogits);
  int32_t* ids = ctx.template Shared<int32_t>(kDrawIds);
  if (ctx.thread() == 0) *used = 0;
  ctx.Barrier();
  ForRow<4>(ctx, state.row, [&](int32_t id, float logit) {
    if (!(-state.row.HeightOf(logit) <= state.deepest)) return;
    const int32_t place = ctx.AtomicAdd(used, 1);
    logits[place] = logit;
    ids[place] = id;
  });
  ctx.Barrier();
  state.listed = count;
}

// Bounds what is in play: by the first depth above which k logits or, with k = 0, `share`
// of the mass lie; by the last one if none does. Returns `share` of the mass of the row.
template <class Ctx>
RENGA_DEVICE uint64_t Bound(Ctx& ctx, DrawState& state, int32_t k, float share) {
  uint64_t* masses = ctx.template Shared<uint64_t>(kDrawMasses);
  int32_t* counts = ctx.template Shared<int32_t>(kDrawCounts);
  if (ctx.thread() < kDrawDepths) {
    masses[ctx.thread()] = 0;
    counts[ctx.thread()] = 0;
  }
  ctx.Barrier();
  uint64_t mass[kDrawDepths] = {};
  int32_t count[kDrawDepths] = {};
  ForRow<4>(ctx, state.row, [&](int32_t, float logit) {
    const float height = state.row.HeightOf(logit);
    const uint32_t weight = WeightOf(height);
    RENGA_UNROLL
    for (int i = 0; i < kDrawDepths; ++i) {
      const bool above = -height <= DepthBound(i);
      mass[i] += above ? weight : 0;
      count[i] += above ? 1 : 0;
    }
  });
  RENGA_UNROLL
  for (int i = 0; i < kDrawDepths; ++i) {
    const uint64_t mass_sum = WarpSum(ctx, mass[i]);
    const uint64_t count_sum = WarpSum(ctx, static_cast<uint64_t>(count[i]));
    if (ctx.lane() == 0) {
      ctx.AtomicAdd(masses + i, mass_sum);
      ctx.AtomicAdd(counts + i, static_cast<int32_t>(count_sum));
    }
  }
  ctx.Barrier();
  const uint64_t wanted = WantedMass(share, masses[kDrawDepths - 1]);
  int at = 0;
  while (at + 1 < kDrawDepths && (k > 0 ? counts[at] < k : masses[at] < wanted)) ++at;
  state.deepest = DepthBound(at);
  if (counts[at] <= kDrawListed) ListCandidates(ctx, state, counts[at]);
  return wanted;
}

// ---- A border ----------------------------------------------------------------------

// The first id, in rising order, at which the sum of value(id, logit) over the candidates
// reaches wanted_of(sum over all of them).
template <class Ctx, class Value, class Wanted>
RENGA_DEVICE int32_t FindId(Ctx& ctx, const DrawState& state, const Value& value,
                            const Wanted& wanted_of) {
  // Bins of 128 ids or more.
  int shift = 7;
  while (state.row.vocab > int64_t{kDrawBins} << shift) ++shift;
  const int64_t bin_ids = int64_t{1} << shift;
  ClearAmounts(ctx);
  if (state.listed >= 0) {
    ForCandidates(ctx, state, [&](int32_t id, float logit) {
      const uint64_t amount = value(id, logit);
      if (amount > 0) AddAmount(ctx, id >> shift, amount);
    });
  } else {
    uint64_t* amounts = ctx.template Shared<uint64_t>(kDrawAmounts);
    RENGA_NO_UNROLL
    for (int bin = ctx.warp(); bin * bin_ids < state.row.vocab; bin += kDrawWarps) {
      uint64_t sum = 0;
      RENGA_NO_UNROLL
      for (int64_t i = bin * bin_ids; i < (bin + 1) * bin_ids; i += kWarp * 4) {
        float x[4];
        LoadLogits(ctx, state.row, i + ctx.lane() * 4, x);
        RENGA_UNROLL
        for (int j = 0; j < 4; ++j) {
          sum += value(static_cast<int32_t>(i + ctx.lane() * 4 + j), x[j]);
        }
      }
      sum = WarpSum(ctx, sum);
      if (ctx.lane() == 0) amounts[bin] = sum;
    }
  }
  const uint64_t wanted = wanted_of(SumAmounts(ctx));
  const FoundBin found = FindBin(ctx, wanted);
  // Every warp looks through the bin, so that nobody has to be told.
  uint64_t before = found.before;
  int64_t first = found.bin * bin_ids;
  RENGA_NO_UNROLL
  for (; first < state.row.vocab; first += kWarp) {
    const int64_t id = first + ctx.lane();
    const float logit = id < state.row.vocab ? state.row.x[id] : kMinusInfinity;
    const uint64_t sum = before + WarpPrefix(ctx, value(static_cast<int32_t>(id), logit));
    const uint32_t reached = ctx.Ballot(sum >= wanted);
    if (reached != 0) return static_cast<int32_t>(first) + LowestBit(reached);
    before = Shuffle64(ctx, sum, kWarp - 1);
  }
  return -1;
}

// A run of logits, by OrderOf.
struct OrderRange {
  uint32_t low;
  uint32_t high;
};

// The smallest and the largest candidate in a bin by depth.
template <class Ctx>
RENGA_DEVICE OrderRange RangeOfBin(Ctx& ctx, const DrawState& state, float bins_per_depth,
                                   int bin) {
  uint32_t* words = ctx.template Shared<uint32_t>(kDrawWords);
  ctx.Barrier();
  if (ctx.thread() < 2) words[ctx.thread()] = 0;
  ctx.Barrier();
  uint32_t low = 0;  // Complemented: the maximum again.
  uint32_t high = 0;
  ForCandidates(ctx, state, [&](int32_t id, float logit) {
    const float place = -state.row.HeightOf(logit) * bins_per_depth;
    if (!(place < kDrawBins) || static_cast<int32_t>(place) != bin) return;
    if (!state.Holds(id, logit)) return;
    const uint32_t order = OrderOf(logit);
    low = ~order > low ? ~order : low;
    high = order > high ? order : high;
  });
  RENGA_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t other_low = ctx.ShuffleXor(low, mask);
    const uint32_t other_high = ctx.ShuffleXor(high, mask);
    low = other_low > low ? other_low : low;
    high = other_high > high ? other_high : high;
  }
  if (ctx.lane() == 0) {
    ctx.AtomicMax(words, low);
    ctx.AtomicMax(words + 1, high);
  }
  ctx.Barrier();
  return {~words[0], words[1]};
}

// What a border is asked to hold.
struct Head {
  bool by_count;    // Of candidates, else of their weights.
  uint64_t wanted;  // 0: `share` of the candidates' mass.
  float share;
};

// Moves the cut to the candidate, in falling order of logits (ties: smaller ids first),
// at which the sum of counts or weights reaches what is wanted, if it does.
template <class Ctx>
RENGA_DEVICE void Cut(Ctx& ctx, DrawState& state, const Head& head) {
  const auto amount_of = [&](float logit) {
    return uint64_t{head.by_count ? 1u : WeightOf(state.row.HeightOf(logit))};
  };
  const float bins_per_depth = static_cast<float>(kDrawBins - 1) / state.deepest;
  ClearAmounts(ctx);
  ForCandidates(ctx, state, [&](int32_t id, float logit) {
    const float place = -state.row.HeightOf(logit) * bins_per_depth;
    if (!(place < kDrawBins) || !state.Holds(id, logit)) return;
    AddAmount(ctx, static_cast<int32_t>(place), amount_of(logit));
  });
  const uint64_t total = SumAmounts(ctx);
  uint64_t wanted = head.wanted > 0 ? head.wanted : WantedMass(head.share, total);
  if (wanted > total) return;  // All that weighs anything stays.
  FoundBin found = FindBin(ctx, wanted);
  wanted -= found.before;
  OrderRange range = RangeOfBin(ctx, state, bins_per_depth, found.bin);
  RENGA_NO_UNROLL
  while (range.low < range.high) {
    int shift = 0;
    while ((range.high - range.low) >> shift >= kDrawBins) ++shift;
    ClearAmounts(ctx);
    ForCandidates(ctx, state, [&](int32_t id, float logit) {
      const uint32_t order = OrderOf(logit);
      if (order < range.low || order > range.high || !state.Holds(id, logit)) return;
      AddAmount(ctx, static_cast<int32_t>((range.high - order) >> shift),
                amount_of(logit));
    });
    SumAmounts(ctx);
    found = FindBin(ctx, wanted);
    wanted -= found.before;
    range.high -= static_cast<uint32_t>(found.bin) << shift;
    const uint32_t width = (1u << shift) - 1;
    if (range.high - range.low > width) range.low = range.high - width;
  }
  // Ties have one weight. All of them stay if the last one is needed.
  const uint64_t each = amount_of(FloatOfOrder(range.low));
  int32_t last = range.low == state.cut_order ? state.cut_id : kAnyId;
  if (wanted + each <= found.inside) {
    const uint64_t ties = (wanted + each - 1) / each;
    last = FindId(
        ctx, state,
        [&](int32_t id, float logit) {
          return uint64_t{OrderOf(logit) == range.low && state.Holds(id, logit) ? 1u
                                                                                : 0u};
        },
        [&](uint64_t) { return ties; });
  }
  state.cut_order = range.low;
  state.cut_id = last;
}

// ---- The draw ----------------------------------------------------------------------

template <class Ctx>
RENGA_DEVICE int32_t DrawFiltered(Ctx& ctx, const DrawSpec& spec, const LogitRow& row) {
  const bool top_k = spec.top_k > 0 && spec.top_k < row.vocab;
  const bool top_p = spec.top_p < 1.0f;
  DrawState state = {row, 32.0f, -1, 0, kAnyId, 1};
  uint64_t mass = 0;  // Of top_p's head, if it is a share of the whole row.
  if (top_k || top_p) mass = Bound(ctx, state, top_k ? spec.top_k : 0, spec.top_p);
  RENGA_NO_UNROLL
  for (int i = 0; i < 2; ++i) {  // One text of Cut for both.
    const Head head = i == 0 ? Head{true, static_cast<uint64_t>(spec.top_k), 0.0f}
                             : Head{false, top_k ? 0 : mass, spec.top_p};
    if (i == 0 ? top_k : top_p) Cut(ctx, state, head);
  }
  // The largest weight is that of the best token, which always stays: 2^30.
  if (spec.min_p > 0.0f) {
    state.least = static_cast<uint32_t>(WantedMass(spec.min_p, uint64_t{1} << 30));
  }
  const uint64_t bits = RandomBits(spec.seed, spec.choice, spec.token_index);
  return FindId(
      ctx, state,
      [&](int32_t id, float logit) {
        const uint32_t weight = WeightOf(row.HeightOf(logit));
        return weight >= state.least && state.Holds(id, logit) ? uint64_t{weight} : 0;
      },
      [&](uint64_t total) { return MulHigh64(bits, total) + 1; });
}

// tokens[i] = the token that SampleToken draws with specs[i], -1 where it draws none.
// Shapes: logits [.][vocab], specs and tokens [.].
// Launch: block per spec, 512 threads. Shared: kDrawSharedBytes.
// Traffic: the row once (greedy), twice (temperature alone, min_p), 3 times (top_k or
// top_p where few logits matter), else 3 times and 3 to 6 times more for each of these
// two.
template <class Ctx>
RENGA_DEVICE void Draw(Ctx& ctx, const DrawArgs& args) {
  if (ctx.block_x() >= *args.spec_count) return;
  const DrawSpec spec = args.specs[ctx.block_x()];
  LogitRow row = {args.logits + spec.logit_row * args.vocab, args.vocab, 0.0f, 0.0f};
  const Best best = FindBest(ctx, row);
  int32_t token = -1;
  if (best.usable) {
    token = best.id;
    if (spec.temperature >= 1e-6f && spec.top_k != 1 && !(spec.min_p >= 1.0f)) {
      row.max = best.logit;
      row.scale = Divide(kLog2E, spec.temperature);
      token = DrawFiltered(ctx, spec, row);
    }
  }
  if (ctx.thread() == 0) args.tokens[ctx.block_x()] = token;
}

}  // namespace renga::cuda

#define RENGA_SAMPLING_KERNELS(X) X(kDraw, DrawArgs, kDrawThreads, 1, Draw)
