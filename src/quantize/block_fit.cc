#include "quantize/block_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/block_format.h"

namespace renga {
namespace {

constexpr int kLanes = 8;                // Partial sums, so that loops become vectors.
constexpr float kRound = 0x1.8p+23f;     // x + kRound - kRound rounds to nearest even.
constexpr float kNothing = 1e-30f;       // A block as small as this is all zero.
constexpr float kMostCode = 15.0f;       // Of a nibble.
constexpr float kMostSuperCode = 63.0f;  // Of 6 bits.

using Block = std::span<const float, kFitBlock>;
using Values = std::array<float, kFitBlock>;

float Sum(const std::array<float, kLanes>& lanes) {
  float sum = 0.0f;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Sum of f(i) over the block.
template <class Function>
float SumOver(const Function& f) {
  std::array<float, kLanes> lanes = {};
  for (size_t i = 0; i < kFitBlock; i += lanes.size()) {
    for (size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] += f(i + lane);
  }
  return Sum(lanes);
}

// The whole number in [low, high] that is nearest to x.
float RoundTo(float x, float low, float high) {
  const float clamped = std::min(std::max(x, low), high);
  return (clamped + kRound) - kRound;
}

float Half(float value) { return F16ToF32(F32ToF16(value)); }

Values Weights(Block x) {
  const float squares = SumOver([&](size_t i) { return x[i] * x[i]; });
  const float rms = std::sqrt(squares / static_cast<float>(kFitBlock));
  Values weights;
  for (size_t i = 0; i < kFitBlock; ++i) weights[i] = std::fabs(x[i]) + rms;
  return weights;
}

// value = step * code + least.
struct Line {
  float step = 0.0f;
  float least = 0.0f;
};

// The codes nearest to the line.
Values CodesOn(Block x, Line line) {
  Values codes = {};
  if (line.step == 0.0f) return codes;
  const float inverse = 1.0f / line.step;
  for (size_t i = 0; i < kFitBlock; ++i) {
    codes[i] = RoundTo((x[i] - line.least) * inverse, 0.0f, kMostCode);
  }
  return codes;
}

float ErrorOf(Block x, const Values& weights, const Values& codes, Line line) {
  return SumOver([&](size_t i) {
    const float error = line.step * codes[i] + line.least - x[i];
    return weights[i] * error * error;
  });
}

// The line that fits these codes best; step 0 where there is none. `floor` is taken off
// the values first: differences of large numbers would be noise.
Line FitLine(Block x, const Values& weights, const Values& codes, float floor,
             bool least_not_positive) {
  const auto& w = weights;
  const float sw = SumOver([&](size_t i) { return w[i]; });
  const float sc = SumOver([&](size_t i) { return w[i] * codes[i]; });
  const float scc = SumOver([&](size_t i) { return w[i] * codes[i] * codes[i]; });
  const float sx = SumOver([&](size_t i) { return w[i] * (x[i] - floor); });
  const float sxc = SumOver([&](size_t i) { return w[i] * (x[i] - floor) * codes[i]; });
  const float det = sw * scc - sc * sc;
  if (!(det > 0.0f)) return {};
  Line line = {(sw * sxc - sx * sc) / det, (scc * sx - sc * sxc) / det + floor};
  if (least_not_positive && line.least > 0.0f) {
    line = {(sxc + floor * sc) / scc, 0.0f};
  }
  return line;
}

// Tries lines around the one through the smallest and the largest value.
Line SearchLine(Block x, const Values& weights, bool least_not_positive) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const float least = least_not_positive ? std::min(*low, 0.0f) : *low;
  const float range = *high - least;
  if (!(range > kNothing)) return {0.0f, least};
  Line best = {range / kMostCode, least};
  float best_error = ErrorOf(x, weights, CodesOn(x, best), best);
  for (float steps = 13.5f; steps <= 16.5f; steps += 0.125f) {
    const Values codes = CodesOn(x, {range / steps, least});
    const Line line = FitLine(x, weights, codes, least, least_not_positive);
    if (!(line.step > 0.0f)) continue;
    const float error = ErrorOf(x, weights, codes, line);
    if (error < best_error) {
      best_error = error;
      best = line;
    }
  }
  return best;
}

Values SymmetricCodes(Block x, float scale, float low, float high) {
  Values codes = {};
  if (scale == 0.0f) return codes;
  const float inverse = 1.0f / scale;
  for (size_t i = 0; i < kFitBlock; ++i) codes[i] = RoundTo(x[i] * inverse, low, high);
  return codes;
}

SymmetricBlock ToBlock(float scale, const Values& codes) {
  SymmetricBlock block{.scale = F32ToF16(scale)};
  for (size_t i = 0; i < kFitBlock; ++i) block.codes[i] = static_cast<int8_t>(codes[i]);
  return block;
}

// The value that is furthest from 0, with its sign.
float Furthest(Block x) {
  return *std::max_element(x.begin(), x.end(),
                           [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

// ---- Q4_K --------------------------------------------------------------------------

// A super block while it is being fitted.
struct Draft {
  float scale = 0.0f;  // Halves.
  float min = 0.0f;
  std::array<float, kFitSuperBlocks> scales = {};  // Whole numbers in [0, 63].
  std::array<float, kFitSuperBlocks> mins = {};
  std::array<Values, kFitSuperBlocks> codes = {};
  float error = 0.0f;

  Line LineOf(size_t b) const { return {scale * scales[b], -(min * mins[b])}; }
};

struct SuperInput {
  explicit SuperInput(std::span<const float, kFitSuper> x) : values(x) {
    for (size_t b = 0; b < kFitSuperBlocks; ++b) weights[b] = Weights(BlockOf(b));
  }
  Block BlockOf(size_t b) const {
    return Block(values.data() + b * kFitBlock, kFitBlock);
  }

  std::span<const float, kFitSuper> values;
  std::array<Values, kFitSuperBlocks> weights;
};

// The best scale and min of each block next to those it has, with their codes.
void ChooseCodes(const SuperInput& in, Draft& draft) {
  draft.error = 0.0f;
  for (size_t b = 0; b < kFitSuperBlocks; ++b) {
    const float scale = draft.scales[b];
    const float min = draft.mins[b];
    float best_error = INFINITY;
    for (const float s : {scale, scale - 1.0f, scale + 1.0f}) {
      for (const float m : {min, min - 1.0f, min + 1.0f}) {
        if (s < 0.0f || s > kMostSuperCode || m < 0.0f || m > kMostSuperCode) continue;
        const Line line = {draft.scale * s, -(draft.min * m)};
        const Values codes = CodesOn(in.BlockOf(b), line);
        const float error = ErrorOf(in.BlockOf(b), in.weights[b], codes, line);
        if (error < best_error) {
          best_error = error;
          draft.scales[b] = s;
          draft.mins[b] = m;
          draft.codes[b] = codes;
        }
      }
    }
    draft.error += best_error;
  }
}

// Fits the two halves to all codes: x = scale * (scales[b] * code) - min * mins[b].
void FitHalves(const SuperInput& in, Draft& draft) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
  for (size_t b = 0; b < kFitSuperBlocks; ++b) {
    const Block x = in.BlockOf(b);
    const double min = static_cast<double>(draft.mins[b]);
    for (size_t i = 0; i < kFitBlock; ++i) {
      const double w = static_cast<double>(in.weights[b][i]);
      const double a = static_cast<double>(draft.scales[b] * draft.codes[b][i]);
      const double value = static_cast<double>(x[i]);
      aa += w * a * a;
      ab += w * a * min;
      bb += w * min * min;
      ax += w * a * value;
      bx += w * min * value;
    }
  }
  if (bb == 0 && aa > 0) {  // No block has a min.
    draft.scale = Half(static_cast<float>(ax / aa));
    return;
  }
  const double det = aa * bb - ab * ab;
  if (!(det > 0)) return;
  const double scale = (ax * bb - bx * ab) / det;
  const double min = (ax * ab - bx * aa) / det;
  if (scale <= 0 || min < 0) return;
  draft.scale = Half(static_cast<float>(scale));
  draft.min = Half(static_cast<float>(min));
}

Draft FirstDraft(const SuperInput& in) {
  std::array<Line, kFitSuperBlocks> lines;
  float most_step = 0.0f;
  float most_min = 0.0f;
  for (size_t b = 0; b < kFitSuperBlocks; ++b) {
    lines[b] = SearchLine(in.BlockOf(b), in.weights[b], true);
    most_step = std::max(most_step, lines[b].step);
    most_min = std::max(most_min, -lines[b].least);
  }
  Draft draft{.scale = Half(most_step / kMostSuperCode),
              .min = Half(most_min / kMostSuperCode)};
  for (size_t b = 0; b < kFitSuperBlocks; ++b) {
    if (draft.scale > 0.0f) {
      draft.scales[b] = RoundTo(lines[b].step / draft.scale, 0.0f, kMostSuperCode);
    }
    if (draft.min > 0.0f) {
      draft.mins[b] = RoundTo(-lines[b].least / draft.min, 0.0f, kMostSuperCode);
    }
  }
  return draft;
}

}  // namespace

SymmetricBlock FitQ8_0(Block x) {
  const float scale = Half(std::fabs(Furthest(x)) / 127.0f);
  return ToBlock(scale, SymmetricCodes(x, scale, -127.0f, 127.0f));
}

SymmetricBlock FitQ4_0(Block x) {
  const float furthest = Furthest(x);
  if (!(std::fabs(furthest) > kNothing)) return {};
  const Values weights = Weights(x);
  float best_scale = furthest / -8.0f;
  float best_gain = 0.0f;
  // `target`: the code of the value that is furthest from 0, before it is rounded.
  const auto attempt = [&](float target) {
    const Values codes = SymmetricCodes(x, furthest / target, -8.0f, 7.0f);
    const float xc = SumOver([&](size_t i) { return weights[i] * x[i] * codes[i]; });
    const float cc = SumOver([&](size_t i) { return weights[i] * codes[i] * codes[i]; });
    // What these codes take off the error, with the scale that fits them best.
    if (!(cc > 0.0f) || !(xc * (xc / cc) > best_gain)) return;
    best_gain = xc * (xc / cc);
    best_scale = xc / cc;
  };
  for (float target = -9.0f; target <= -6.75f; target += 0.125f) attempt(target);
  for (float target = 6.25f; target <= 8.0f; target += 0.125f) attempt(target);
  const float scale = Half(best_scale);
  return ToBlock(scale, SymmetricCodes(x, scale, -8.0f, 7.0f));
}

AffineBlock FitQ4_1(Block x) {
  const Line found = SearchLine(x, Weights(x), false);
  const Line line = {Half(found.step), Half(found.least)};
  const Values codes = CodesOn(x, line);
  AffineBlock block{.scale = F32ToF16(line.step), .least = F32ToF16(line.least)};
  for (size_t i = 0; i < kFitBlock; ++i) block.codes[i] = static_cast<uint8_t>(codes[i]);
  return block;
}

SuperBlock FitQ4K(std::span<const float, kFitSuper> x) {
  constexpr int kRounds = 2;
  const SuperInput in(x);
  Draft draft = FirstDraft(in);
  ChooseCodes(in, draft);
  Draft best = draft;
  for (int round = 0; round < kRounds; ++round) {
    FitHalves(in, draft);
    ChooseCodes(in, draft);
    if (draft.error < best.error) best = draft;
  }
  SuperBlock block{.scale = F32ToF16(best.scale), .min = F32ToF16(best.min)};
  for (size_t b = 0; b < kFitSuperBlocks; ++b) {
    block.scales[b] = static_cast<uint8_t>(best.scales[b]);
    block.mins[b] = static_cast<uint8_t>(best.mins[b]);
    for (size_t i = 0; i < kFitBlock; ++i) {
      block.codes[b * kFitBlock + i] = static_cast<uint8_t>(best.codes[b][i]);
    }
  }
  return block;
}

}  // namespace renga
