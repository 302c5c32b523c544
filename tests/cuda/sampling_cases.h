// Checks of the draw of kernels/cuda/sampling.h: the token of kernels/sampling.h, always.
// See device_case.h.

#pragma once

#include "kernels/cuda/sampling.h"
#include "tests/cuda/device_case.h"

namespace renga::test {

CheckResults CheckSampling(Device& device, CheckSize size);

// Rows of logits that differ in kind.
enum class LogitKind {
  kNormal,
  kWide,  // As models have them: a few far above the rest.
  kTies,
  kMostlyOut,  // -inf but for every fourth.
  kHugeRange,  // A range that no difference of floats can hold.
  kEqual,
  kClose,      // Neighbouring floats.
  kTwoLevels,  // Two values, many of each, zeros of both signs among them.
  kUnusable,   // A NaN or +inf somewhere, or nothing finite.
};
constexpr int kLogitKinds = 9;
std::vector<float> LogitsOf(LogitKind kind, int64_t vocab, uint32_t seed);

// What the device draws, and what SampleToken draws: one for each spec.
struct Draws {
  std::vector<int32_t> got;
  std::vector<int32_t> expected;
};
// logits: [.][vocab]. Specs behind `count` are on the device, but not counted.
Draws DrawBoth(Device& device, const std::vector<float>& logits, int64_t vocab,
               const std::vector<cuda::DrawSpec>& specs, int32_t count);

}  // namespace renga::test
